package agent

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"text/template"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/ashore-mesh/ashore/agent/envoy"
)

//go:embed bootstrap.yaml
var bootstrapTemplate string

// Names of static clusters, also in their statistics.
const (
	clusterXDS = "xds-grpc"
	clusterSDS = "sds-grpc"
)

// maxConnections bounds the connections that are open to Envoy at one time.
const maxConnections = 50_000

// staticListener passes GET of one path to one cluster.
type staticListener struct {
	Name, Path, Cluster string
	Port                int
}

// Bootstrap returns Envoy's first configuration as JSON, for settings that Complete has accepted.
// The same settings give the same bytes. Envoy asks the agent for everything, its key and
// certificates too, over a unix socket.
func Bootstrap(s *Settings) ([]byte, error) {
	n, err := node(s, streamConfig)
	if err != nil {
		return nil, err
	}
	nodeJSON, err := protojson.Marshal(n)
	if err != nil {
		return nil, fmt.Errorf("encode node: %w", err)
	}
	var text bytes.Buffer
	t := template.Must(template.New("bootstrap").Funcs(template.FuncMap{"json": jsonString}).Parse(bootstrapTemplate))
	err = t.Execute(&text, map[string]any{
		"Node":           string(nodeJSON),
		"Address":        s.Workload.Addresses[0],
		"AdminSocket":    s.adminSocket(),
		"XDSSocket":      s.xdsSocket(),
		"SocketMode":     uint32(s.socketMode()),
		"SourceClusters": []string{clusterXDS, clusterSDS},
		"StatusPort":     statusPort,
		"Listeners": []staticListener{
			{envoy.HealthListener, "/healthz/ready", "agent", healthPort},
			{envoy.MetricsListener, "/stats/prometheus", "prometheus_stats", metricsPort},
		},
		"MaxConnections": maxConnections,
		"Stats":          s.Envoy.mesh.GetProxyStatsMatcher(),
		"SelfDiscovery":  s.Envoy.selfDiscovery(),
	})
	if err != nil {
		return nil, fmt.Errorf("bootstrap of Envoy: %w", err)
	}
	var document any
	if err := yaml.Unmarshal(text.Bytes(), &document); err != nil {
		return nil, fmt.Errorf("bootstrap of Envoy: %w", err)
	}
	raw, err := json.MarshalIndent(document, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("bootstrap of Envoy: %w", err)
	}
	return raw, nil
}

func jsonString(text string) (string, error) {
	b, err := json.Marshal(text)
	return string(b), err
}
