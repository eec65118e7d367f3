package gen

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"golang.org/x/tools/txtar"
	"google.golang.org/protobuf/proto"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/xds/gen/envoy"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// oddBase is what odd specifications refer to.
const oddBase = `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: web, namespace: edge}
spec:
  hosts: [web.example.com]
  addresses: [10.5.5.5]
  ports: [{number: 80, name: http}, {number: 81, name: tcp}, {number: 443, name: tls}, {number: 82, name: x}]
  resolution: STATIC
  endpoints: [{address: 10.0.0.9, labels: {app: edge}}, {address: 10.0.0.2}]
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: base, namespace: edge}
spec: {selector: {app: edge}, servers: [{port: {number: 8000, name: http, protocol: HTTP}, hosts: ["*"]}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: base, namespace: edge}
spec:
  hosts: ["*"]
  gateways: [odd, base]
  http: [{route: [{destination: {host: web.example.com, port: {number: 80}}}]}]
  tcp: [{route: [{destination: {host: web.example.com, port: {number: 81}}}]}]
  tls: [{match: [{sniHosts: ["*"]}], route: [{destination: {host: web.example.com, port: {number: 443}}}]}]
---
`

// Whatever validation lets through, however odd, the real Envoy takes: one resource that it refuses
// would hold up everything else.
func TestEnvoyAcceptsOddSpecifications(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "..", "config", "testdata", "odd", "accepted.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for _, node := range []string{
		"addresses: [10.0.0.9]\nnamespace: edge\nlabels: {app: edge}\nidentity: true\n",
		"type: router\naddresses: [10.0.0.9]\nnamespace: edge\nlabels: {app: edge}\nidentity: true\n",
		"addresses: [10.0.0.9]\nnamespace: edge\nlabels: {app: edge}\n",
		"addresses: [127.0.0.9]\nnamespace: edge\nlabels: {app: edge}\ninterception: NONE\n",
		"type: router\naddresses: [10.0.0.9, \"2001:db8::1\"]\nnamespace: edge\nlabels: {app: edge}\n",
	} {
		var all oddResources
		number := 0
		for line := range strings.Lines(string(text)) {
			number++
			kind, spec, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
			info, ok := config.Info(config.Kind(kind))
			if !ok {
				t.Fatalf("line %d: %s is no kind", number, kind)
			}
			all.add(t, number, node, "apiVersion: "+info.APIVersion()+"\nkind: "+kind+"\nmetadata: {name: odd, namespace: edge}\nspec: "+spec+"\n")
		}
		envoyAccepts(t, all.listeners, all.clusters)
	}
}

// oddResources are those of many configurations, told apart by their names.
type oddResources struct {
	listeners []*listenerv3.Listener
	clusters  []*clusterv3.Cluster
	seen      map[string]bool // encoded
}

// isNew says whether a resource has not been seen before; most are those of oddBase.
func (o *oddResources) isNew(m proto.Message) bool {
	key := string(resource.Encode(m))
	if o.seen[key] {
		return false
	}
	if o.seen == nil {
		o.seen = map[string]bool{}
	}
	o.seen[key] = true
	return true
}

// add adds what a proxy is sent by one configuration: its listeners with the routes inside, on
// sockets of their own, and its clusters with the endpoints inside.
func (o *oddResources) add(t *testing.T, number int, node, text string) {
	t.Helper()
	if strings.Contains(text, "hosts: [web.example.com], ports") {
		return // the base has it already
	}
	sc := scopeOf(t, &txtar.Archive{Files: []txtar.File{{Name: "node.yaml", Data: []byte(node)},
		{Name: "config.yaml", Data: []byte(oddBase + text)}}})
	g := New()
	sets := []resource.Set{g.Set(resource.ListenerType, sc), g.Set(resource.RouteType, sc), g.Set(resource.ClusterType, sc)}
	for _, p := range resource.Problems(sets...) {
		if p.Severity == feed.Error { // a warning says what a proxy without certificate cannot do
			t.Errorf("line %d: accepted, and %s", number, p)
		}
	}
	for _, l := range withRoutesInside(t, g, sc) {
		if !o.isNew(l) {
			continue
		}
		l.Name = fmt.Sprintf("%d %s", number, l.Name)
		l.Address = envoy.PipeAddress(fmt.Sprintf("unix://@odd-%d-%d", number, len(o.listeners)))
		l.AdditionalAddresses = nil
		o.listeners = append(o.listeners, l)
	}
	assignments := decoded[*endpointv3.ClusterLoadAssignment](t, g.Set(resource.EndpointType, sc))
	for _, c := range decoded[*clusterv3.Cluster](t, g.Set(resource.ClusterType, sc)) {
		if c.GetType() == clusterv3.Cluster_EDS {
			c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC}
			c.EdsClusterConfig, c.LoadAssignment = nil, assignments[c.Name]
		}
		// Envoy 1.40 crashes when clusters of its bootstrap that wait for nothing take secrets by
		// ADS (TestEnvoyWarmsClusters, upstream-tls.txtar)
		c.TransportSocket, c.TransportSocketMatches = nil, nil
		if !o.isNew(c) {
			continue
		}
		c.Name = fmt.Sprintf("%d %s", number, c.Name)
		if c.LoadAssignment != nil {
			c.LoadAssignment.ClusterName = c.Name
		}
		o.clusters = append(o.clusters, c)
	}
}
