package gen

import (
	"maps"
	"testing"
	"time"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"golang.org/x/tools/txtar"

	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// agesOf returns the maximum ages of connections by the names of chains. Those of raw connections
// end with " tcp".
func agesOf(t *testing.T, listeners []*listenerv3.Listener,
	pick func(*listenerv3.FilterChain) string) map[string]time.Duration {
	t.Helper()
	out := map[string]time.Duration{}
	for _, l := range listeners {
		for _, c := range append(l.FilterChains[:len(l.FilterChains):len(l.FilterChains)], l.DefaultFilterChain) {
			for _, f := range c.GetFilters() {
				p := &tcpv3.TcpProxy{}
				if f.GetTypedConfig().MessageIs(p) {
					if err := f.GetTypedConfig().UnmarshalTo(p); err != nil {
						t.Fatal(err)
					}
					out[pick(c)+" tcp"] = p.GetMaxDownstreamConnectionDuration().AsDuration()
				}
				m := &hcmv3.HttpConnectionManager{}
				if !f.GetTypedConfig().MessageIs(m) {
					continue
				}
				if err := f.GetTypedConfig().UnmarshalTo(m); err != nil {
					t.Fatal(err)
				}
				age := m.GetCommonHttpProtocolOptions().GetMaxConnectionDuration().AsDuration()
				if (age > 0) != m.Http1SafeMaxConnectionDuration {
					t.Errorf("%s %s: the age is %v, and safe for HTTP/1: %v", l.Name, c.Name, age,
						m.Http1SafeMaxConnectionDuration)
				}
				out[pick(c)] = age
			}
		}
	}
	return out
}

// Only connections whose callers are asked for a certificate have a maximum age.
func TestConnectionsOfProvenCallersAreBounded(t *testing.T) {
	t.Parallel()
	const age = 7 * time.Hour
	trust := &push.Trust{Connections: push.ConnectionBounds{Age: age}}
	inbound := scopeOf(t, &txtar.Archive{Files: []txtar.File{
		{Name: "node.yaml", Data: []byte("addresses: [10.0.0.1]\nnamespace: shop\nidentity: true\n")},
		{Name: "config.yaml", Data: []byte(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: web, namespace: shop}
spec: {hosts: [web.example], location: MESH_INTERNAL, ports: [{number: 8080, name: http}], resolution: STATIC, endpoints: [{address: 10.0.0.1}]}
`)},
	}})
	gateway := scopeOf(t, &txtar.Archive{Files: []txtar.File{
		{Name: "node.yaml", Data: []byte("type: router\naddresses: [10.0.0.1]\nnamespace: edge\nidentity: true\n")},
		{Name: "config.yaml", Data: []byte(`
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: edge, namespace: edge}
spec:
  selector: {}
  servers:
  - {port: {number: 443, name: a, protocol: HTTPS}, hosts: [mutual.example.com], tls: {mode: MUTUAL, serverCertificate: /c, privateKey: /k, caCertificates: /r}}
  - {port: {number: 443, name: b, protocol: HTTPS}, hosts: [mesh.example.com], tls: {mode: ISTIO_MUTUAL}}
  - {port: {number: 443, name: c, protocol: HTTPS}, hosts: [open.example.com], tls: {mode: SIMPLE, serverCertificate: /c, privateKey: /k}}
  - {port: {number: 80, name: d, protocol: HTTP}, hosts: [plain.example.com]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: edge, namespace: edge}
spec: {hosts: ["*.example.com"], gateways: [edge], http: [{route: [{destination: {host: web, port: {number: 80}}}]}]}
`)},
	}})
	security := func(c *listenerv3.FilterChain) string {
		switch {
		case c.GetTransportSocket() != nil:
			return "mutual TLS"
		default:
			return "plaintext"
		}
	}
	name := func(c *listenerv3.FilterChain) string {
		if n := c.GetFilterChainMatch().GetServerNames(); len(n) > 0 {
			return n[0]
		}
		return "plaintext"
	}
	for _, tc := range []struct {
		what string
		sc   *push.Scope
		pick func(*listenerv3.FilterChain) string
		want map[string]time.Duration
	}{
		{"sidecar", inbound, security, map[string]time.Duration{"mutual TLS": age, "mutual TLS tcp": age, "plaintext": 0, "plaintext tcp": 0}},
		{"gateway", gateway, name, map[string]time.Duration{"mutual.example.com": age, "mesh.example.com": age, "open.example.com": 0, "plaintext": 0}},
	} {
		tc.sc.Trust = trust
		g := New()
		set := g.Set(resource.ListenerType, tc.sc)
		if got := agesOf(t, decodeListeners(t, set), tc.pick); !maps.Equal(got, tc.want) {
			t.Errorf("%s: ages %v, want %v", tc.what, got, tc.want)
		}
		again := *tc.sc
		again.Trust = &push.Trust{ID: "other roots", Identities: []string{"x"}, Connections: trust.Connections}
		if g.Set(resource.ListenerType, &again) != set {
			t.Errorf("%s: other roots make other listeners", tc.what)
		}
	}
}
