package analyze_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ashore-mesh/ashore/config"
)

// servers is a Gateway of the namespace a. Each server is "PORT PROTOCOL HOST…"; HTTPS and TLS end
// TLS.
func servers(name, selector string, list ...string) string {
	var out []string
	for i, text := range list {
		f := strings.Fields(text)
		tls := ""
		if f[1] == "HTTPS" || f[1] == "TLS" {
			tls = ", tls: {mode: SIMPLE, serverCertificate: /c.pem, privateKey: /k.pem}"
		}
		out = append(out, fmt.Sprintf("{port: {number: %s, name: p%d, protocol: %s}, hosts: [%q]%s}", f[0], i, f[1],
			strings.Join(f[2:], `", "`), tls))
	}
	return object(config.Gateway, "a/"+name, "selector: {"+selector+"}, servers: ["+strings.ReplaceAll(strings.Join(out,
		", "), `\"`, `"`)+"]")
}

func TestGatewayConflicts(t *testing.T) {
	t.Parallel()
	const in, out = "app: in", "app: out"
	lost := func(server int, why string) []string {
		return []string{fmt.Sprintf("IST0145 mesh.yaml:6 Gateway a/g1 spec.servers[%d]: server on port ", server) + why}
	}
	comes := func(port, why string) string {
		return port + " is ignored: " + why + ", and spec.servers[0] of Gateway a/g0 (mesh.yaml) takes precedence because it is older or sorts first"
	}
	check(t, []testCase{
		{"different ports", []string{servers("g0", in, "80 HTTP *", "443 HTTPS a.b", "9000 TCP *")}, nil},
		{"HTTP shares hosts too", []string{servers("g0", in, "80 HTTP a.b"), servers("g1", in, "80 GRPC a.b")}, nil},
		{"TLS shares a port by host", []string{servers("g0", in, "443 HTTPS a.b"), servers("g1", in, "443 TLS c.d")}, nil},
		{"different proxies", []string{servers("g0", in, "80 HTTP *"), servers("g1", out, "80 TCP *")}, nil},
		{"HTTP and TLS", []string{servers("g0", in, "80 HTTP *"), servers("g1", in, "80 HTTPS a.b")}, lost(0, comes("80", "TLS and HTTP cannot share a port"))},
		{"two TCP servers", []string{servers("g0", in, "9000 TCP *"), servers("g1", in, "9000 MONGO *")}, lost(0, comes("9000", "connections without TLS cannot be told apart by host"))},
		{"a host twice with TLS", []string{servers("g0", in, "443 HTTPS x.y ns/a.b"), servers("g1", in, "443 HTTPS c.d a.b")}, lost(0, comes("443", "it has host a.b too"))},
		{"one server of two", []string{servers("g0", in, "80 HTTP *"), servers("g1", in, "81 HTTP *", "80 TCP *")}, lost(1, comes("80", "TCP and HTTP cannot share a port"))},
	})
}

// asked is a VirtualService of the namespace a for web.com.
func asked(name, gateways, routes string) string {
	return route("a/"+name, "hosts: [web.com], gateways: ["+gateways+"], "+routes)
}

func TestRouteConflicts(t *testing.T) {
	t.Parallel()
	const to = "route: [{destination: {host: web.internal, port: {number: 80}}}]"
	http := func(matches ...string) string {
		var list []string
		for _, m := range matches {
			if m != "" {
				m = "match: [" + m + "], "
			}
			list = append(list, "{"+m+to+"}")
		}
		return "http: [" + strings.Join(list, ", ") + "]"
	}
	path := func(p string) string { return "{uri: {prefix: " + p + "}}" }
	tls := func(sni string) string { return "tls: [{match: [{sniHosts: [" + sni + "]}], " + to + "}]" }
	mesh := func(documents ...string) []string {
		return append([]string{service("a/web", "web.internal", ""),
			servers("gw", "app: gw", "80 HTTP *", "443 HTTPS *", "444 HTTPS web.com")}, documents...)
	}
	sidecars := func(kind string) string {
		return "IST0109 mesh.yaml:16 VirtualService a/y spec." + kind + ": no effect for host web.com on sidecars, because VirtualService a/x (mesh.yaml) has " + kind +
			" routes for that host too and takes precedence (narrower exportTo, then age, then namespace and name)"
	}
	gateways := func(field string) string {
		return "ASH0001 mesh.yaml:16 VirtualService a/y " + field + ": no effect for host web.com on Gateway a/gw, because VirtualService a/x (mesh.yaml) has http routes for that host too and takes precedence"
	}
	check(t, []testCase{
		{"on sidecars", mesh(asked("x", "mesh", http("")), asked("y", "mesh", http(path("/x")))), []string{sidecars("http")}},
		{"other gateways", mesh(asked("x", "gw", http("")), asked("y", "mesh", http(""))), nil},
		{"on a Gateway", mesh(asked("x", "gw", http("")), asked("y", "a/gw", http(""))), []string{gateways("spec.http[0]")}},
		{"on both", mesh(asked("x", "gw, mesh", http("")), asked("y", "gw, mesh", http(""))), []string{sidecars("http"), gateways("spec.http[0]")}},
		{"merged on a Gateway: the catch-all route comes last", mesh(asked("x", "gw", http(path("/a"), "")), asked("y", "gw", http(path("/b")))), nil},
		{"merged, with different paths", mesh(asked("x", "gw", http(path("/a"))), asked("y", "gw", http(path("/b"), path("/c")))), nil},
		{"the same path", mesh(asked("x", "gw", http(path("/a"))), asked("y", "gw", http(path("/b"), path("/a")))), nil},
		{"two catch-all routes", mesh(asked("x", "gw", http(path("/"))), asked("y", "gw", http(path("/a"), ""))), []string{gateways("spec.http[1]")}},
		{"by match", mesh(asked("x", "gw, mesh", http("{gateways: [mesh]}")), asked("y", "gw, mesh", http("{gateways: [gw]}"))), nil},
		{"different ports", mesh(asked("x", "mesh", http("{port: 80}")), asked("y", "mesh", http("{port: 81}"))), nil},
		{"one port and all", mesh(asked("x", "mesh", http("{port: 81}")), asked("y", "mesh", http(""))), nil},
		{"the same source", mesh(asked("x", "mesh", http("{sourceLabels: {app: x}}")), asked("y", "mesh", http("{sourceLabels: {app: x}}"))), nil},
		{"different kinds", mesh(asked("x", "mesh", http("")), asked("y", "mesh", "tcp: [{"+to+"}]")), nil},
		{"tcp", mesh(asked("x", "mesh", "tcp: [{"+to+"}]"), asked("y", "mesh", "tcp: [{"+to+"}]")), []string{sidecars("tcp")}},
		{"tls routes are not compared", mesh(asked("x", "mesh", tls("web.com")), asked("y", "mesh", tls("web.com"))), nil},
		{"a narrower exportTo takes precedence", mesh(asked("x", "mesh", http("")), asked("y", "mesh", http("")+", exportTo: [.]")), nil},
		{"the first is not seen by all", mesh(asked("x", "mesh", http("")+", exportTo: [b]"), asked("y", "mesh", http(""))), nil},
		{
			"another namespace", mesh(asked("x", "mesh", http("")), strings.Replace(asked("y", "mesh", http("")), "namespace: a", "namespace: b", 1)),
			[]string{"VirtualService b/y spec.http: no effect for host web.com on sidecars, because VirtualService a/x (mesh.yaml) has http routes"},
		},
		{
			"on two Gateways", append([]string{service("a/web", "web.internal", ""), servers("one", "app: gw", "80 HTTP *"), servers("two", "app: gw", "80 HTTP *")},
				asked("z", "one", http("")), asked("b", "two", http(""))), nil,
		},
	})
}
