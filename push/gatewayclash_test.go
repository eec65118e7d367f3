package push

import (
	"fmt"
	"strings"
	"testing"
	"time"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/google/go-cmp/cmp"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
)

// server is "PORT PROTOCOL HOST…"; a protocol that ends TLS has tls.
func server(text string) *networking.Server {
	f := strings.Fields(text)
	s := &networking.Server{Port: &networking.Port{Protocol: f[1]}, Hosts: f[2:]}
	if _, err := fmt.Sscan(f[0], &s.Port.Number); err != nil {
		panic(err)
	}
	if f[1] == "HTTPS" || f[1] == "TLS" {
		s.Tls = &networking.ServerTLSSettings{Mode: networking.ServerTLSSettings_SIMPLE}
	}
	return s
}

// gatewayProblems are all findings about in.
func gatewayProblems(in Inputs) (out []feed.Problem) {
	var c crossings
	c.look(in, func(_ place, found []finding) {
		for _, f := range found {
			out = append(out, f.problem)
		}
	})
	return out
}

// Servers that package gen leaves out are told of, and no others.
func TestGatewayClashes(t *testing.T) {
	t.Parallel()
	ingress, both, egress := map[string]string{"app": "in"}, map[string]string{"app": "in", "zone": "a"}, map[string]string{"app": "out"}
	zone := map[string]string{"zone": "a"}
	type gateway struct {
		selector map[string]string
		servers  []*networking.Server
	}
	on := func(selector map[string]string, servers ...string) gateway {
		g := gateway{selector: selector}
		for _, s := range servers {
			g.servers = append(g.servers, server(s))
		}
		return g
	}
	bound := func(bind, text string) gateway {
		s := server(text)
		s.Bind = bind
		return gateway{ingress, []*networking.Server{s}}
	}
	target := func(port uint32, text string) *networking.Server {
		s := server(text)
		s.Port.TargetPort = port //nolint:staticcheck // still read
		return s
	}
	tests := map[string]struct {
		gateways []gateway // the older first; the first is g0
		want     []string
	}{
		"one":                               {[]gateway{on(ingress, "80 HTTP *", "443 HTTPS a.b", "9000 TCP *")}, nil},
		"plain HTTP shares hosts too":       {[]gateway{on(ingress, "80 HTTP a.b"), on(ingress, "80 GRPC a.b")}, nil},
		"TLS shares a port by host":         {[]gateway{on(ingress, "443 HTTPS a.b"), on(ingress, "443 TLS c.d")}, nil},
		"different proxies":                 {[]gateway{on(ingress, "80 HTTP *"), on(egress, "80 TCP *")}, nil},
		"different ports":                   {[]gateway{on(ingress, "80 HTTP *"), on(ingress, "81 TCP *")}, nil},
		"HTTP and TLS on the same proxies":  {[]gateway{on(ingress, "80 HTTP *"), on(ingress, "80 HTTPS a.b")}, []string{"error g1 spec.servers[0]: g0 TLS and HTTP cannot share a port"}},
		"a second TCP server":               {[]gateway{on(ingress, "9000 TCP *"), on(ingress, "9000 MONGO *")}, []string{"error g1 spec.servers[0]: g0 connections without TLS cannot be told apart by host"}},
		"one host twice with TLS":           {[]gateway{on(ingress, "443 HTTPS x.y ns/a.b"), on(ingress, "443 HTTPS c.d a.b")}, []string{"error g1 spec.servers[0]: g0 it has host a.b too"}},
		"a host twice in one server":        {[]gateway{on(ingress, "443 HTTPS one/a.b two/a.b")}, nil},
		"the older selects more":            {[]gateway{on(ingress, "80 HTTP *"), on(both, "80 TCP *")}, []string{"error g1 spec.servers[0]: g0 TCP and HTTP cannot share a port"}},
		"the older selects everything":      {[]gateway{on(nil, "80 HTTP *"), on(both, "80 TCP *")}, []string{"error g1 spec.servers[0]: g0 TCP and HTTP cannot share a port"}},
		"the older selects less":            {[]gateway{on(both, "80 HTTP *"), on(ingress, "80 TCP *")}, []string{"warning g1 spec.servers[0]: g0 TCP and HTTP cannot share a port"}},
		"some proxies may have both labels": {[]gateway{on(ingress, "80 HTTP *"), on(zone, "80 TCP *")}, []string{"warning g1 spec.servers[0]: g0 TCP and HTTP cannot share a port"}},
		"the certain one of two is told of": {
			[]gateway{on(zone, "80 HTTP *"), on(ingress, "80 HTTP *"), on(ingress, "80 TCP *")}, []string{"error g2 spec.servers[0]: g1 TCP and HTTP cannot share a port"},
		},
		"what is left out takes nothing": {
			[]gateway{on(ingress, "443 HTTPS a.b"), on(ingress, "443 HTTPS a.b c.d"), on(ingress, "443 HTTPS c.d")}, []string{"error g1 spec.servers[0]: g0 it has host a.b too"},
		},
		"another address":               {[]gateway{bound("10.0.0.1", "80 HTTP *"), bound("10.0.0.2", "80 TCP *")}, nil},
		"all addresses":                 {[]gateway{bound("0.0.0.0", "80 HTTP *"), bound("", "80 TCP *")}, []string{"error g1 spec.servers[0]: g0 TCP and HTTP cannot share a port"}},
		"all addresses of two families": {[]gateway{bound("::", "80 HTTP *"), bound("0.0.0.0", "80 TCP *")}, []string{"error g1 spec.servers[0]: g0 TCP and HTTP cannot share a port"}},
		"one address in two ways":       {[]gateway{bound("fd00::1", "80 HTTP *"), bound("fd00:0::1", "80 TCP *")}, []string{"error g1 spec.servers[0]: g0 TCP and HTTP cannot share a port"}},
		"one socket":                    {[]gateway{bound("unix:///run/a", "80 HTTP *"), bound("unix:///run/a", "81 TCP *")}, []string{"error g1 spec.servers[0]: g0 TCP and HTTP cannot share a port"}},
		"one target port":               {[]gateway{{ingress, []*networking.Server{target(8080, "80 HTTP *"), target(8080, "81 TCP *")}}}, []string{"error g0 spec.servers[1]: g0 TCP and HTTP cannot share a port"}},
		"each server by itself":         {[]gateway{on(ingress, "80 HTTP *"), on(ingress, "81 HTTP *", "80 TCP *")}, []string{"error g1 spec.servers[1]: g0 TCP and HTTP cannot share a port"}},
		"age counts, and not name":      {[]gateway{on(ingress, "80 TCP *"), on(ingress, "80 HTTP *"), on(egress, "80 HTTP *")}, []string{"error g1 spec.servers[0]: g0 HTTP and TCP cannot share a port"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := emptyInputs()
			for i, g := range tc.gateways {
				// names run against age, so that it is age that counts
				o := &config.Object{Key: config.Key{Kind: config.Gateway, Namespace: "a", Name: fmt.Sprint("z", 9-i)}, Created: time.Unix(int64(i), 0)}
				o.Labels = map[string]string{"called": fmt.Sprint("g", i)}
				o.Origin.File = o.Labels["called"]
				o.Spec = &networking.Gateway{Selector: g.selector, Servers: g.servers}
				in.Objects = in.Objects.With(o.Key, o)
			}
			var got []string
			for _, p := range gatewayProblems(in) {
				_, rest, _ := strings.Cut(p.Text, "(")
				other, rest, _ := strings.Cut(rest, ")")
				_, why, _ := strings.Cut(rest, "by name, and ")
				why, _, _ = strings.Cut(why, ":")
				got = append(got, fmt.Sprintf("%s %s %s: %s %s", p.Severity, p.File, p.Field, other, why))
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

// A place is named as operators write it.
func TestGatewayPlace(t *testing.T) {
	t.Parallel()
	for bind, want := range map[string]string{"": "port 80", "0.0.0.0": "port 80", "10.0.0.1": "port 80 of 10.0.0.1", "unix:///run/a": "unix:///run/a"} {
		s := server("80 HTTP *")
		s.Bind = bind
		if got := placeOf(s).String(); got != want {
			t.Errorf("bind %q: got %q, want %q", bind, got, want)
		}
	}
}

// BenchmarkGatewayClashes looks again at one port of many Gateways, of which one changed: each for proxies of its
// own, or all for the same.
func BenchmarkGatewayClashes(b *testing.B) {
	for _, n := range []int{1000, 3000} {
		for name, app := range map[string]func(i int) string{"apart": func(i int) string { return fmt.Sprint(i) }, "together": func(int) string { return "one" }} {
			b.Run(fmt.Sprint(name, n), func(b *testing.B) {
				in := emptyInputs()
				for i := range n {
					aged(&in, config.Gateway, "a", fmt.Sprint("g", i), &config.Object{Spec: gatewayFor(app(i), fmt.Sprintf("443 HTTPS %d.b %d.d", i, i))})
				}
				var c crossings
				c.look(in, func(place, []finding) {})
				k := config.Key{Kind: config.Gateway, Namespace: "a", Name: "g1"}
				for b.Loop() {
					o := *in.Objects.At(k)
					in.Objects = in.Objects.With(k, &o)
					c.look(in, func(place, []finding) {})
				}
			})
		}
	}
}
