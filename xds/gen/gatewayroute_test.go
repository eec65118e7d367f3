package gen

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// gatewayYAML makes a Gateway's text of its servers.
func gatewayYAML(name, servers string) string {
	return "\n---\napiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata: {name: " + name + ", namespace: edge}\nspec:\n  selector: {app: gw}\n  servers:\n" + servers
}

const (
	plainServer = "  - {port: {number: 8080, name: http, protocol: HTTP}, hosts: ["
	tlsServer   = "  - {port: {number: 443, name: https, protocol: HTTPS}, tls: {mode: SIMPLE, serverCertificate: /c, privateKey: /k}, hosts: ["
)

func TestGatewayHosts(t *testing.T) {
	t.Parallel()
	bound := func(name, hosts, rest string) string {
		return vsYAML(name, hosts, "  gateways: [edge/gw, edge/gw2]\n"+rest)
	}
	to := func(cluster string) string { return "  http:\n" + toCluster(cluster, 80) }
	tests := []struct {
		name, text, route string
		want              []string
	}{
		{"no VirtualService", gatewayYAML("gw", plainServer+"'*']}\n"), "http.8080", []string{"blackhole:8080 [*]"}},
		{"the narrower host", gatewayYAML("gw", plainServer+"'*.foo.com', bar.com]}\n") + bound("a", "[x.foo.com, '*.com', other.org]", to("a.x")), "http.8080",
			[]string{"*.foo.com:8080 [*.foo.com] outbound|80||a.x", "bar.com:8080 [bar.com] outbound|80||a.x", "x.foo.com:8080 [x.foo.com] outbound|80||a.x"}},
		{"a host for another namespace", gatewayYAML("gw", plainServer+"prod/a.com, ./b.com, shop/c.com, '*/d.com']}\n") + bound("a", "[a.com, b.com, c.com, d.com]", to("a.x")), "http.8080",
			[]string{"c.com:8080 [c.com] outbound|80||a.x", "d.com:8080 [d.com] outbound|80||a.x"}},
		{"several VirtualServices of one host, catch-alls last and once",
			gatewayYAML("gw", plainServer+"'*']}\n") +
				bound("a", "[a.com]", to("all.x")) +
				bound("b", "[a.com]", "  http:\n  - match: [{uri: {prefix: /b}}]\n    route: [{destination: {host: b.x, port: {number: 1}}}]\n") +
				bound("c", "[a.com]", to("never.x")), "http.8080",
			[]string{"a.com:8080 [a.com] outbound|1||b.x outbound|80||all.x"}},
		{"two Gateways on one port", gatewayYAML("gw", plainServer+"a.com]}\n") + gatewayYAML("gw2", plainServer+"b.com]}\n") + bound("a", "[a.com, b.com]", to("a.x")), "http.8080",
			[]string{"a.com:8080 [a.com] outbound|80||a.x", "b.com:8080 [b.com] outbound|80||a.x"}},
		{"two Gateways that spell the address of one port differently", gatewayYAML("gw", plainServer+"a.com]}\n") + gatewayYAML("gw2", plainServer+"b.com], bind: 0.0.0.0}\n") + bound("a", "[a.com, b.com]", to("a.x")), "http.8080",
			[]string{"a.com:8080 [a.com] outbound|80||a.x", "b.com:8080 [b.com] outbound|80||a.x"}},
		{"a match by gateway", gatewayYAML("gw", plainServer+"a.com]}\n") + gatewayYAML("gw2", plainServer+"b.com]}\n") +
			bound("a", "[a.com, b.com]",
				"  http:\n  - match: [{gateways: [edge/gw2]}]\n    route: [{destination: {host: two.x}}]\n  - match: [{uri: {prefix: /one}}]\n    route: [{destination: {host: one.x}}]\n"), "http.8080",
			[]string{"a.com:8080 [a.com] outbound|7000||one.x", "b.com:8080 [b.com] outbound|8080||two.x"}},
		{"https", gatewayYAML("gw", tlsServer+"a.com]}\n") + bound("a", "[a.com]", to("a.x")), "https.443.https.gw.edge", []string{"a.com:443 [a.com] outbound|80||a.x"}},
		{"redirection to https", gatewayYAML("gw", "  - {port: {number: 8080, name: http, protocol: HTTP}, tls: {httpsRedirect: true}, hosts: [a.com, b.com]}\n") + bound("a", "[a.com]", to("a.x")), "http.8080",
			[]string{"a.com:8080 [a.com] outbound|80||a.x tls", "b.com:8080 [b.com] tls"}},
		{"VirtualServices of sidecars are not for routers", gatewayYAML("gw", plainServer+"'*']}\n") + vsYAML("a", "[a.com]", to("a.x")), "http.8080", []string{"blackhole:8080 [*]"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			sc := meshOf(t, shopServices+onePort+tt.text).router("app=gw")
			all := routesOf(t, New(), sc)
			if d := cmp.Diff(tt.want, hostLines(all[tt.route])); d != "" {
				t.Errorf("virtual hosts (-want +got):\n%s", d)
			}
		})
	}
}
