package goldentest

import (
	"bytes"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
)

// Proxy is a proxy as YAML describes it.
type Proxy struct {
	// Name is the workload's; it makes the proxy's ID together with Namespace.
	Name      string `yaml:"name"`
	Namespace string `yaml:"namespace"`
	// Type is sidecar (also when empty) or router.
	Type string `yaml:"type"`
	// Addresses are the workload's; the first is where listeners are bound.
	Addresses []string          `yaml:"addresses"`
	Labels    map[string]string `yaml:"labels"`
	// Locality is region/zone/subzone.
	Locality string `yaml:"locality"`
	// Interception is REDIRECT (also when empty), TPROXY, "TPROXY without IPv6" or NONE.
	Interception  string `yaml:"interception"`
	HTTPProxyPort uint32 `yaml:"httpProxyPort"`
	// CapturesDNS says that its workload's DNS queries are captured.
	CapturesDNS bool `yaml:"capturesDNS"`
	// SelfDiscovery is push.Node.SelfDiscovery.
	SelfDiscovery bool `yaml:"selfDiscovery"`
	// Identity says that it has a certificate of the mesh.
	Identity bool `yaml:"identity"`
	// Group is the WorkloadGroup of its namespace that it registers with; empty: none.
	Group string `yaml:"group"`
}

// Proxies reads a file that lists proxies. An unknown field, or no proxy at all, fails the test.
func Proxies(t testing.TB, path string) []Proxy {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out []Proxy
	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)
	if err := dec.Decode(&out); err != nil || len(out) == 0 {
		t.Fatalf("%s lists %d proxies: %v", path, len(out), err)
	}
	return out
}

// Node is the proxy as a connection would describe it.
func (p Proxy) Node(t testing.TB) push.Node {
	t.Helper()
	var (
		addresses intern.Lists[netip.Addr]
		lists     intern.Lists[push.Label]
		ips       []netip.Addr
		labels    []push.Label
	)
	for _, a := range p.Addresses {
		ip, err := netip.ParseAddr(a)
		if err != nil {
			t.Fatalf("proxy %q: address %q: %v", p.Name, a, err)
		}
		ips = append(ips, ip)
	}
	for k, v := range p.Labels {
		labels = append(labels, push.Label{Key: k, Value: v})
	}
	slices.SortFunc(labels, func(a, b push.Label) int { return strings.Compare(a.Key, b.Key) })
	out := push.Node{
		Namespace: p.Namespace, IPs: addresses.Of(ips), Labels: lists.Of(labels),
		Locality: registry.ParseLocality(p.Locality), HTTPProxyPort: p.HTTPProxyPort, CapturesDNS: p.CapturesDNS, Identity: p.Identity,
		SelfDiscovery: p.SelfDiscovery,
	}
	if p.Name != "" {
		out.ID, out.DNSDomain = p.Name+"."+p.Namespace, p.Namespace+".svc.cluster.local"
	}
	types := map[string]push.NodeType{"": push.Sidecar, "sidecar": push.Sidecar, "router": push.Router}
	modes := map[string]push.Interception{"": push.Redirect, "REDIRECT": push.Redirect, "TPROXY": push.TProxy,
		"TPROXY without IPv6": push.TProxyIPv4, "NONE": push.None}
	var typed, intercepted bool
	out.Type, typed = types[p.Type]
	out.Interception, intercepted = modes[p.Interception]
	if !typed || !intercepted {
		t.Fatalf("proxy %q: unknown type %q or interception %q", p.Name, p.Type, p.Interception)
	}
	return out
}
