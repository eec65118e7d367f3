package agent

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"path/filepath"
	"text/template"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/resource_monitors/downstream_connections/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
)

//go:embed bootstrap.yaml
var bootstrapTemplate string

// Names of static clusters and listeners, also in their statistics.
const (
	clusterXDS      = "xds-grpc"
	clusterSDS      = "sds-grpc"
	listenerHealth  = "agent"
	listenerMetrics = "metrics"
)

// staticListener passes GET of one path to one cluster.
type staticListener struct {
	Name, Path, Cluster string
	Port                int
}

// Bootstrap returns Envoy's first configuration for settings that Complete has accepted. Envoy asks
// the agent for everything, its key and certificates too, over a unix socket.
func Bootstrap(s *Settings) (*bootstrapv3.Bootstrap, error) {
	n, err := node(s, streamConfig)
	if err != nil {
		return nil, err
	}
	nodeJSON, err := protojson.Marshal(n)
	if err != nil {
		return nil, fmt.Errorf("encode node: %w", err)
	}
	var listeners []staticListener
	for _, l := range []staticListener{
		{listenerHealth, "/healthz/ready", "agent", s.Ports.Health},
		{listenerMetrics, "/stats/prometheus", "prometheus_stats", s.Ports.Metrics},
	} {
		if l.Port != 0 {
			listeners = append(listeners, l)
		}
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
		"StatusPort":     s.Ports.Status,
		"Listeners":      listeners,
		"MaxConnections": s.Envoy.MaxConnections,
	})
	if err != nil {
		return nil, fmt.Errorf("bootstrap of Envoy: %w", err)
	}
	var document any
	if err := yaml.Unmarshal(text.Bytes(), &document); err != nil {
		return nil, fmt.Errorf("bootstrap of Envoy: %w", err)
	}
	raw, err := json.Marshal(document)
	if err != nil {
		return nil, fmt.Errorf("bootstrap of Envoy: %w", err)
	}
	b := &bootstrapv3.Bootstrap{}
	if err := protojson.Unmarshal(raw, b); err != nil {
		return nil, fmt.Errorf("bootstrap of Envoy: %w", err)
	}
	if err := b.ValidateAll(); err != nil {
		return nil, fmt.Errorf("bootstrap of Envoy: %w", err)
	}
	return b, nil
}

func jsonString(text string) (string, error) {
	b, err := json.Marshal(text)
	return string(b), err
}

// BootstrapJSON is Bootstrap as the file that Envoy reads; the same settings give the same bytes.
func BootstrapJSON(s *Settings) ([]byte, error) {
	b, err := Bootstrap(s)
	if err != nil {
		return nil, err
	}
	raw, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(b)
	if err != nil {
		return nil, fmt.Errorf("encode bootstrap: %w", err)
	}
	var out bytes.Buffer
	if err := json.Indent(&out, raw, "", "  "); err != nil { // protojson's own spacing differs from build to build
		return nil, fmt.Errorf("indent bootstrap: %w", err)
	}
	out.WriteByte('\n')
	return out.Bytes(), nil
}

// adminSocket is the path of the admin interface's unix socket.
func (s *Settings) adminSocket() string { return filepath.Join(s.envoyFolder(), "admin.sock") }
