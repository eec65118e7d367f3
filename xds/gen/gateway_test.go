package gen

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/push"
)

func TestGatewayListeners(t *testing.T) {
	t.Parallel()
	simple := &networking.ServerTLSSettings{Mode: networking.ServerTLSSettings_SIMPLE, ServerCertificate: "/a.pem",
		PrivateKey: "/a.key"}
	pass := &networking.ServerTLSSettings{Mode: networking.ServerTLSSettings_PASSTHROUGH}
	redirect := &networking.ServerTLSSettings{HttpsRedirect: true}
	to := func(host string) []*networking.RouteDestination {
		return []*networking.RouteDestination{tcpRoute(host, 1, 0)}
	}
	tcp := func(name string, match *networking.L4MatchAttributes, hosts ...string) *push.VirtualService {
		r := &networking.TCPRoute{Route: to(name)}
		if match != nil {
			r.Match = []*networking.L4MatchAttributes{match}
		}
		return testVS(name, &networking.VirtualService{Hosts: hosts, Tcp: []*networking.TCPRoute{r}})
	}
	tls := func(name string, match *networking.TLSMatchAttributes, hosts ...string) *push.VirtualService {
		return testVS(name, &networking.VirtualService{Hosts: hosts,
			Tls: []*networking.TLSRoute{{Match: []*networking.TLSMatchAttributes{match}, Route: to(name)}}})
	}
	bound := func(s *networking.Server, address string) *networking.Server {
		s.Bind = address
		return s
	}
	dual := func(sc *push.Scope) *push.Scope {
		sc.DualStack = true
		return sc
	}
	elsewhere := testGateway("a", nil, testServer(80, "HTTP", nil, "*"), testServer(443, "HTTPS", simple, "*"))
	elsewhere[0].Port, elsewhere[1].Port = 8080, 8443

	tests := []struct {
		name  string
		scope *push.Scope
		want  []string
	}{
		{"plain HTTP servers of several gateways share a port",
			testRouter(testGateway("a", nil, testServer(80, "HTTP", nil, "a.example")),
				testGateway("b", nil, testServer(80, "HTTP2", redirect, "b.example"))),
			[]string{"0.0.0.0_80 bound", "  all-> route http.80"}},
		{"the router's service maps ports", testRouter(elsewhere),
			[]string{"0.0.0.0_8080 bound", "  all-> route http.8080", "0.0.0.0_8443 bound",
				"  all-> tls route https.443.https-443.a.edge"}},
		{"servers with bind addresses are apart",
			testRouter(testGateway("a", nil, bound(testServer(80, "HTTP", nil, "*"), "127.0.0.2"),
				bound(testServer(80, "TCP", nil, "*"), "127.0.0.3"), bound(testServer(80, "HTTP", nil, "*"),
					"127.0.0.4"))),
			[]string{"127.0.0.2_80 bound", "  all-> route http.80.127.0.0.2", "127.0.0.4_80 bound",
				"  all-> route http.80.127.0.0.4"}},
		{"every address of both families, however it is said", dual(testRouter(
			testGateway("a", nil, bound(testServer(80, "HTTP", nil, "a.example"), "::")), testGateway("b", nil,
				testServer(80, "HTTP", nil, "b.example")))),
			[]string{"0.0.0.0_80 and :: bound", "  all-> route http.80.::"}},
		{"https servers are told apart by name, a repeated one is left out",
			testRouter(testGateway("a", nil, testServer(443, "HTTPS", simple, "a.example", "shop/b.example")),
				testGateway("b", nil, testServer(443, "HTTPS", simple, "b.example"),
					testServer(443, "HTTPS", simple, "*"))),
			[]string{"0.0.0.0_443 bound", "  sni [a.example b.example] -> tls route https.443.https-443.a.edge",
				"  all-> tls route https.443.https-443.b.edge"}},
		{"plain HTTP does not join TLS",
			testRouter(testGateway("a", nil, testServer(443, "HTTPS", simple, "a.example"),
				testServer(443, "HTTP", nil, "b.example"))),
			[]string{"0.0.0.0_443 bound", "  sni [a.example] -> tls route https.443.https-443.a.edge"}},
		{"tcp takes the first route that matches the server",
			testRouter(testGateway("a", []*push.VirtualService{
				tcp("port", &networking.L4MatchAttributes{Port: 1}, "*"),
				tcp("gateway", &networking.L4MatchAttributes{Gateways: []string{"edge/other"}}, "*"),
				tcp("hosts", nil, "other.example"),
				tcp("hit", &networking.L4MatchAttributes{Port: 9000, Gateways: []string{"edge/a"}}, "raw.example"),
				tcp("late", nil, "raw.example"),
			}, testServer(9000, "TCP", nil, "raw.example"))),
			[]string{"0.0.0.0_9000 bound", "  all-> outbound|1||hit"}},
		{"tcp without a route is no listener", testRouter(testGateway("a", nil, testServer(9000, "TCP", nil, "*"))), nil},
		{"tls ended, connections forwarded",
			testRouter(testGateway("a", []*push.VirtualService{tcp("raw", nil, "*")},
				testServer(8443, "TLS", simple, "a.example"))),
			[]string{"0.0.0.0_8443 bound", "  sni [a.example] -> tls outbound|1||raw"}},
		{"passthrough by the names that route and server have in common",
			testRouter(testGateway("a", []*push.VirtualService{
				tls("narrow", &networking.TLSMatchAttributes{SniHosts: []string{"a.pass.example", "a.other.example"}},
					"*.pass.example", "*.other.example"),
				tls("wide", &networking.TLSMatchAttributes{SniHosts: []string{"*.example"}}, "*.example"),
				tls("port", &networking.TLSMatchAttributes{SniHosts: []string{"*.pass.example"}, Port: 1},
					"*.pass.example"),
			}, testServer(443, "TLS", pass, "*.pass.example"))),
			[]string{"0.0.0.0_443 bound", "  sni [a.pass.example] -> outbound|1||narrow",
				"  sni [*.pass.example] -> outbound|1||wide"}},
		{"a server's hosts are for namespaces",
			testRouter(testGateway("a", []*push.VirtualService{tcp("raw", nil, "a.example")},
				testServer(9000, "TCP", nil, "other/a.example", "./a.example"), testServer(9001, "TCP", nil,
					"shop/a.example"), testServer(9002, "TCP", nil, "*/a.example"))),
			[]string{"0.0.0.0_9001 bound", "  all-> outbound|1||raw", "0.0.0.0_9002 bound", "  all-> outbound|1||raw"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if d := cmp.Diff(tt.want, planLines(t, tt.scope)); d != "" {
				t.Errorf("listeners (-want +got):\n%s", d)
			}
		})
	}
}
