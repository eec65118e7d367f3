package push_test

import (
	"testing"

	"github.com/ashore-mesh/ashore/config"
)

// A VirtualService whose routes are all of a kind that no server of its Gateway takes is told of.
func TestDanglingRouteKinds(t *testing.T) {
	t.Parallel()
	reviews := entryOf("shop/reviews", "reviews.shop.svc.cluster.local", "")
	const to = "route: [{destination: {host: reviews.shop.svc.cluster.local, port: {number: 80}}}]"
	const http, tcp, tls = "http: [{" + to + "}]", "tcp: [{" + to + "}]", "tls: [{match: [{sniHosts: [x.example.com]}], " + to + "}]"
	const ends = ", tls: {mode: SIMPLE, serverCertificate: /c.pem, privateKey: /k.pem}"
	server := func(port, protocol, host, more string) string {
		return "{port: {number: " + port + ", name: p" + port + ", protocol: " + protocol + "}, hosts: [" + host + "]" + more + "}"
	}
	const x, pass = "x.example.com", ", tls: {mode: PASSTHROUGH}"
	mesh := func(routes string, servers ...string) []string {
		list := ""
		for _, s := range servers {
			list += s + ", "
		}
		return []string{
			reviews, yamlOf(config.Gateway, "edge/gw", "selector: {app: gw}, servers: ["+list+"]"),
			routeOf("shop/r", "hosts: [x.example.com], gateways: [mesh, edge/gw], "+routes),
		}
	}
	const at = "VirtualService shop/r spec.gateways[1]: no server of Gateway edge/gw that admits these hosts takes "
	const so = " routes, and the object has no others, so nothing of it is served there: write "
	checkDangling(t, []danglingCase{
		{"http at HTTP", mesh(http, server("80", "HTTP", x, "")), nil},
		{"http at HTTPS", mesh(http, server("443", "HTTPS", x, ends)), nil},
		{"tcp at TCP", mesh(tcp, server("9000", "TCP", x, "")), nil},
		{"tcp at TLS that ends", mesh(tcp, server("9000", "TLS", x, ends)), nil},
		{"tls at TLS that is passed through", mesh(tls, server("443", "TLS", x, pass)), nil},
		{"tls at HTTPS that is passed through", mesh(tls, server("443", "HTTPS", x, pass)), nil},
		{"one kind of two is enough", mesh(http+", "+tcp, server("80", "HTTP", x, "")), nil},
		{"one server of two is enough", mesh(tcp, server("80", "HTTP", x, ""), server("9000", "TCP", x, "")), nil},
		{
			"tcp at HTTP", mesh(tcp, server("80", "HTTP", x, ""), server("443", "HTTPS", x, ends)),
			[]string{"mesh.yaml:11: " + at + "tcp" + so + "http routes instead, or add a server for tcp routes (protocol TCP, or TLS that the server ends)"},
		},
		{
			"tls at TLS that ends", mesh(tls, server("443", "TLS", x, ends), server("80", "HTTP", x, "")),
			[]string{at + "tls" + so + "http or tcp routes instead, or add a server for tls routes (tls.mode PASSTHROUGH)"},
		},
		{
			"http at TCP", mesh(http, server("9000", "TCP", x, "")),
			[]string{at + "http" + so + "tcp routes instead, or add a server for http routes (protocol HTTP, or HTTPS with TLS that the server ends)"},
		},
		{
			"http at TLS that is passed through", mesh(http, server("443", "TLS", x, pass)),
			[]string{at + "http" + so + "tls routes instead, "},
		},
		{
			"the server that would take it is for other hosts", mesh(tcp, server("80", "HTTP", x, ""), server("9000", "TCP", "y.example.com", "")),
			[]string{at + "tcp" + so + "http routes instead, "},
		},
		{
			"two kinds, neither of which it takes", mesh(http+", "+tls, server("9000", "TCP", x, "")),
			[]string{at + "http or tls" + so + "tcp routes instead, "},
		},
	})
}
