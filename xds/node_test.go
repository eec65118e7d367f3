package xds

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
)

func encodeNode(t testing.TB, n *corev3.Node, metadata map[string]any) []byte {
	t.Helper()
	var err error
	if metadata != nil {
		if n.Metadata, err = structpb.NewStruct(metadata); err != nil {
			t.Fatal(err)
		}
	}
	b, err := proto.Marshal(n)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestNode(t *testing.T) {
	t.Parallel()
	ns := &nodes{}
	raw := encodeNode(t, &corev3.Node{
		Id:                   "sidecar~10.9.9.9~web-1.shop~shop.svc.cluster.local",
		Locality:             &corev3.Locality{Region: "eu", Zone: "eu-1", SubZone: "rack"},
		UserAgentName:        "envoy",
		UserAgentVersionType: &corev3.Node_UserAgentBuildVersion{UserAgentBuildVersion: &corev3.BuildVersion{Version: &typev3.SemanticVersion{MajorNumber: 1, MinorNumber: 40}}},
		Extensions:           []*corev3.Extension{{Name: "a"}, {Name: "b", Disabled: true}, {Name: "c"}},
	}, map[string]any{
		"INSTANCE_IPS": "10.0.0.1,fe80::1,2001:db8::1,10.0.0.1, nonsense", "NAMESPACE": "front", "SERVICE_ACCOUNT": "web", "NETWORK": "n1",
		"LABELS": map[string]any{"version": "v1", "app": "web"}, "INTERCEPTION_MODE": "NONE", "HTTP_PROXY_PORT": "15080", "DNS_CAPTURE": "true", "ASHORE_VERSION": "v0.3.0", "PROXY_CONFIG": map[string]any{"a": map[string]any{"b": []any{"c"}}},
	})
	p, err := ns.read(raw)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]any{
		"type": p.Type, "id": p.Node.ID, "whole": p.ID, "namespace": p.Namespace, "domain": p.DNSDomain, "account": p.ServiceAccount, "network": p.Network,
		"ips": fmt.Sprint(p.IPs.Items()), "labels": fmt.Sprint(p.Labels.Items()), "locality": p.Locality, "mode": p.Interception, "dns": p.CapturesDNS, "port": p.HTTPProxyPort,
		"agent": p.Agent, "envoy": p.Envoy,
	}
	want := map[string]any{
		"type": push.Sidecar, "id": "web-1.shop", "whole": "sidecar~10.9.9.9~web-1.shop~shop.svc.cluster.local", "namespace": "front", "domain": "shop.svc.cluster.local",
		"account": "web", "network": "n1", "ips": fmt.Sprint([]netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("2001:db8::1")}),
		"labels": fmt.Sprint([]push.Label{{Key: "app", Value: "web"}, {Key: "version", Value: "v1"}}), "locality": registry.Locality{Region: "eu", Zone: "eu-1", SubZone: "rack"},
		"mode": push.None, "dns": true, "port": uint32(15080), "agent": "v0.3.0", "envoy": "1.40.0",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("node (-want +got):\n%s", d)
	}
	again, err := ns.read(raw)
	if err != nil {
		t.Fatal(err)
	}
	if again.Node != p.Node {
		t.Error("the same node read twice is not equal: proxies would not share")
	}
}

// Envoys that would reject what is made for them are refused with the reason.
func TestNodeOfOldEnvoy(t *testing.T) {
	t.Parallel()
	_, err := new(nodes).read(encodeNode(t, &corev3.Node{Id: "sidecar~10.0.0.1~a~b", UserAgentName: "envoy",
		UserAgentVersionType: &corev3.Node_UserAgentBuildVersion{UserAgentBuildVersion: &corev3.BuildVersion{
			Version: &typev3.SemanticVersion{MajorNumber: 1, MinorNumber: 38, Patch: 3}}}}, nil))
	if err == nil || err.Error() != "version 1.38.3 of Envoy is not supported: use 1.39 or newer" {
		t.Errorf("error %v", err)
	}
}

// What a node does not say has Istio's default; what it says wrong is an error with its name.
func TestNodeDefaultsAndErrors(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		id       string
		metadata map[string]any
		want     string // namespace, mode and addresses; or the error
	}{
		"defaults":      {"router~10.0.0.1~gw.ns1~ns1.svc.cluster.local", nil, "ns1 0 [10.0.0.1]"},
		"v6":            {"sidecar~::1~a~b.c", nil, "b 0 [::1]"},
		"tproxy":        {"sidecar~10.0.0.1~a~b.c", map[string]any{"INTERCEPTION_MODE": "TPROXY"}, "b 1 [10.0.0.1]"},
		"no IPv6":       {"sidecar~10.0.0.1~a~b.c", map[string]any{"INTERCEPTION_MODE": "TPROXY", "ASHORE_IPV6": "false"}, "b 3 [10.0.0.1]"},
		"mode":          {"sidecar~10.0.0.1~a~b.c", map[string]any{"INTERCEPTION_MODE": "MAGIC"}, `node metadata INTERCEPTION_MODE is "MAGIC", want REDIRECT, TPROXY or NONE`},
		"port":          {"sidecar~10.0.0.1~a~b.c", map[string]any{"HTTP_PROXY_PORT": "70000"}, `node metadata HTTP_PROXY_PORT is "70000", want a port number`},
		"number as is":  {"sidecar~10.0.0.1~a~b.c", map[string]any{"HTTP_PROXY_PORT": 8080}, "b 0 [10.0.0.1]"},
		"long":          {"sidecar~10.0.0.1~" + strings.Repeat("a", 1010) + "~b", nil, "the service node has 1029 bytes, at most 1024 are allowed"},
		"long label":    {"sidecar~10.0.0.1~a~b.c", map[string]any{"LABELS": map[string]any{"a": strings.Repeat("x", 64<<10)}}, "read node: it has 65599 bytes without its extensions, at most 65536 are allowed"},
		"parts":         {"sidecar~10.0.0.1~a", nil, `missing parts in the service node "sidecar~10.0.0.1~a": want type~ip~id~domain`},
		"type":          {"car~10.0.0.1~a~b", nil, `node type "car" is not supported: sidecar and router are`},
		"served not":    {"ztunnel~10.0.0.1~a~b", nil, `node type "ztunnel" is not supported: sidecar and router are`},
		"no address":    {"sidecar~x~a~b", nil, "no valid IP address in the service node id or metadata"},
		"only metadata": {"sidecar~x~a~b", map[string]any{"INSTANCE_IPS": "10.0.0.7"}, "b 0 [10.0.0.7]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, err := new(nodes).read(encodeNode(t, &corev3.Node{Id: tc.id}, tc.metadata))
			got := ""
			if err != nil {
				got = err.Error()
			} else {
				got = fmt.Sprint(p.Namespace, " ", p.Interception, " ", p.IPs.Items())
			}
			if got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// Of addresses, which are compared with one another, only so many are read.
func TestNodeManyAddresses(t *testing.T) {
	t.Parallel()
	var list strings.Builder
	for i := range 2 * maxAddresses {
		fmt.Fprintf(&list, "10.0.%d.%d,", i>>8, i&255)
	}
	p, err := new(nodes).read(encodeNode(t, &corev3.Node{Id: "sidecar~10.0.0.1~a~b"},
		map[string]any{"INSTANCE_IPS": list.String()}))
	if err != nil || p.IPs.Len() != maxAddresses {
		t.Errorf("got %d addresses, error %v; want %d", p.IPs.Len(), err, maxAddresses)
	}
}

// Any bytes are a node or an error.
func FuzzNode(f *testing.F) {
	f.Add(encodeNode(f, &corev3.Node{Id: "sidecar~10.0.0.1~a~b", Extensions: []*corev3.Extension{{Name: "x"}}},
		map[string]any{"LABELS": map[string]any{"a": "b"}}))
	ns := &nodes{}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if p, err := ns.read(raw); err == nil && p.IPs.Len() == 0 {
			t.Error("a node without an address")
		}
	})
}

// realNode is as large as a real one.
func realNode(b testing.TB, i int) []byte {
	n := &corev3.Node{Id: fmt.Sprintf("sidecar~10.0.%d.%d~web-%d.shop~shop.svc.cluster.local", i>>8, i&255, i),
		UserAgentName: "envoy"}
	for e := range 516 {
		n.Extensions = append(n.Extensions, &corev3.Extension{Name: fmt.Sprintf("envoy.filters.http.extension_%03d", e),
			Category: "envoy.filters.http",
			TypeUrls: []string{fmt.Sprintf("envoy.extensions.filters.http.extension_%03d.v3.Config", e)}})
	}
	return encodeNode(b, n, map[string]any{"NAMESPACE": "shop", "LABELS": map[string]any{"app": "web"},
		"INSTANCE_IPS": fmt.Sprintf("10.0.%d.%d", i>>8, i&255)})
}

func BenchmarkNode(b *testing.B) {
	ns := &nodes{}
	raw := realNode(b, rand.IntN(1000))
	b.SetBytes(int64(len(raw)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ns.read(raw); err != nil {
			b.Fatal(err)
		}
	}
}
