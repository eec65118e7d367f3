package agent

import (
	"bytes"
	"crypto/x509"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/ashore-mesh/ashore/internal/peername"
	"github.com/ashore-mesh/ashore/internal/spiffe"
	"github.com/ashore-mesh/ashore/internal/testenvoy"
	"github.com/ashore-mesh/ashore/internal/wholefile"
)

// ISTIO_META_ENABLE_SELF_DISCOVERY of the mesh makes Envoy ask for the workload's own service.
func TestSelfDiscovery(t *testing.T) {
	t.Parallel()
	for _, value := range []string{"true", "false", ""} {
		s := good()
		s.Envoy.adopt(&meshconfig.ProxyConfig{ProxyMetadata: map[string]string{selfDiscoveryVariable: value}})
		b := parsedBootstrap(t, s)
		_, told := b.Node.Metadata.Fields["ENABLE_SELF_DISCOVERY"]
		asks := slices.ContainsFunc(b.StaticResources.Clusters, func(c *clusterv3.Cluster) bool {
			return c.Name == b.ClusterManager.GetLocalClusterName()
		})
		if want := value == "true"; told != want || asks != want {
			t.Errorf("%q: node %t, cluster %t, want %t", value, told, asks, want)
		}
	}
}

// The node is what Istio's control plane reads too: names, types and forms.
func TestNode(t *testing.T) {
	t.Parallel()
	s := good()
	w := &s.Workload
	w.Namespace, w.Addresses, w.Labels = "shop", []string{"10.0.0.7", "fd00::7"}, map[string]string{"app": "web",
		"version": "v1"}
	w.serviceAccount, w.Network, w.Locality = "web", "net-1", "eu/a/rack-1"
	s.Envoy.DrainTime, s.Envoy.Concurrency = 90*time.Second, 2
	if err := s.Complete(); err != nil {
		t.Fatal(err)
	}
	n, err := node(&s, streamConfig)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := protojson.Marshal(n)
	if err != nil {
		t.Fatal(err)
	}
	var got, want any
	if err := json.Unmarshal(raw, &got); err != nil {
		t.Fatal(err)
	}
	const text = `{
		"id": "sidecar~10.0.0.7~web-1.shop~shop.svc.cluster.local",
		"cluster": "web.shop",
		"locality": {"region": "eu", "zone": "a", "subZone": "rack-1"},
		"metadata": {
			"NAME": "web-1", "NAMESPACE": "shop", "WORKLOAD_NAME": "web-1", "CANONICAL_SERVICE": "web", "CANONICAL_REVISION": "v1",
			"INSTANCE_IPS": "10.0.0.7,fd00::7",
			"ISTIO_VERSION": "1.31.1", "LABELS": {"app": "web", "version": "v1"}, "INTERCEPTION_MODE": "NONE",
			"SERVICE_ACCOUNT": "web", "NETWORK": "net-1", "ASHORE_STREAM": "config",
			"ENVOY_STATUS_PORT": 15021, "ENVOY_PROMETHEUS_PORT": 15090,
			"PROXY_CONFIG": {"concurrency": 2, "drainDuration": "90s", "statusPort": 15020}
		}
	}`
	if err := json.Unmarshal([]byte(text), &want); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("node (-want +got):\n%s", d)
	}
}

// The certificate knows the labels of the WorkloadGroup, which the agent's settings need not have.
func TestNodeNamesAsInCertificate(t *testing.T) {
	t.Parallel()
	s := good()
	s.Workload.Namespace = "shop"
	if err := s.Complete(); err != nil {
		t.Fatal(err)
	}
	name := peername.Name{Workload: "web-vms", Service: "web", Revision: "v1", Cluster: "c1"}
	id := &Identity{ID: spiffe.ID{TrustDomain: "mesh", Namespace: "shop", ServiceAccount: "web"},
		Chain: []*x509.Certificate{{DNSNames: []string{name.DNS()}}}}
	if err := s.applyIdentity(id, Joined{Workload: s.Workload.Name}); err != nil {
		t.Fatal(err)
	}
	n, err := node(&s, streamConfig)
	if err != nil {
		t.Fatal(err)
	}
	if n.Cluster != "web.shop" {
		t.Errorf("cluster %s, want web.shop", n.Cluster)
	}
	for key, want := range map[string]string{"WORKLOAD_NAME": "web-vms", "CANONICAL_SERVICE": "web",
		"CANONICAL_REVISION": "v1"} {
		if got := n.Metadata.Fields[key].GetStringValue(); got != want {
			t.Errorf("%s: got %q, want %q", key, got, want)
		}
	}
}

// The same settings give the same bytes: what a machine's bootstrap is can be compared.
func TestBootstrapStable(t *testing.T) {
	t.Parallel()
	s := good()
	s.Workload.Labels = map[string]string{"a": "1", "b": "2", "c": "3", "d": "4"}
	first, err := Bootstrap(&s)
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if again, err := Bootstrap(&s); err != nil || !bytes.Equal(first, again) {
			t.Fatalf("another bootstrap, %v:\n%s", err, cmp.Diff(string(first), string(again)))
		}
	}
}

// A real Envoy takes every form of bootstrap.
func TestEnvoyTakesBootstrap(t *testing.T) {
	t.Parallel()
	for name, edit := range map[string]func(*Settings){
		"plain":    nil,
		"replicas": func(s *Settings) { s.XDS.Addresses = []string{"127.0.0.1:15010", "127.0.0.9:15010"} },
		"names":    func(s *Settings) { s.XDS.Addresses = []string{"localhost:15010", "[::1]:15010"} },
		"router":   func(s *Settings) { s.Workload.Type = "router"; s.Workload.Interception = "redirect" },
		"IPv6":     func(s *Settings) { s.Workload.Addresses = []string{"::1", "127.0.0.2"} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := example(t, "127.0.41.10", edit)
			b, err := Bootstrap(&s)
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(s.State, "bootstrap.json")
			if err := wholefile.Write(path, b); err != nil {
				t.Fatal(err)
			}
			out, err := exec.CommandContext(t.Context(), testenvoy.Path(t), "--mode", "validate", "--log-level",
				"warning", "-c", path).CombinedOutput()
			if err != nil || bytes.Contains(out, []byte("[warning]")) {
				t.Errorf("Envoy: %v\n%s", err, out)
			}
		})
	}
}
