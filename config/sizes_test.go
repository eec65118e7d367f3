package config

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ashore-mesh/ashore/internal/feed"
)

// What is as long as Envoy allows is accepted, and one more is refused: Envoy would refuse
// everything that stands beside it.
func TestSizesThatEnvoyTakes(t *testing.T) {
	t.Parallel()
	const to = `{host: web.example.com, port: {number: 80}}`
	route := func(rest string) string {
		return `VirtualService {hosts: [web.example.com], http: [{` + rest + `, route: [{destination: ` + to + `}]}]}`
	}
	long := func(n int) string { return strings.Repeat("x", n) }
	headers := func(n int) string {
		names := make([]string, n)
		for i := range names {
			names[i] = fmt.Sprintf("h%d: a", i)
		}
		return "{" + strings.Join(names, ", ") + "}"
	}
	labels := func(n int) string {
		names := make([]string, n)
		for i := range names {
			names[i] = fmt.Sprintf("l%d", i)
		}
		return strings.Join(names, ", ")
	}
	for _, c := range []struct {
		name string
		most int
		line func(n int) string
		want string
	}{
		{"value set", 16384, func(n int) string { return route(`headers: {request: {set: {a: ` + long(n) + `}}}`) }, "the value of the header has 16385 bytes, more than 16384"},
		{"value added to the response", 16384, func(n int) string { return route(`headers: {response: {add: {a: ` + long(n) + `}}}`) }, "the value of the header has 16385"},
		{"name", 16384, func(n int) string { return route(`headers: {request: {set: {? ` + long(n) + ` : b}}}`) }, "the name of the header has 16385"},
		{"value of a destination", 16384, func(n int) string {
			return `VirtualService {hosts: [web.example.com], http: [{route: [{headers: {response: {set: {a: ` + long(n) + `}}}, destination: ` + to + `}]}]}`
		}, "the value of the header has 16385"},
		{"headers", 1000, func(n int) string {
			return route(`headers: {request: {set: ` + headers(n-1) + `, add: {other: a}}}`)
		}, "1001 headers are added to requests, more than 1000"},
		{"headers of a response", 1000, func(n int) string { return route(`headers: {response: {add: ` + headers(n) + `}}`) }, "1001 headers are added to responses"},
		{"headers of the route and its destination", 1000, func(n int) string {
			return `VirtualService {hosts: [web.example.com], http: [{headers: {request: {set: {other: a}}}, route: [{headers: {request: {set: ` + headers(n-1) + `}}, destination: ` + to + `}]}]}`
		}, "1001 headers are added to requests"},
		{"headers of one of two destinations", 1000, func(n int) string {
			return `VirtualService {hosts: [web.example.com], http: [{route: [{weight: 1, headers: {request: {set: ` + headers(n) + `}}, destination: ` + to + `}, {weight: 1, destination: ` + to + `}]}]}`
		}, "spec.http[0].route[0].headers.request: 1001 headers are added to requests"},
		{"query parameter", 1024, func(n int) string {
			return route(`match: [{queryParams: {? ` + long(n) + ` : {exact: a}}}]`)
		}, "the name of the parameter has 1025 bytes, more than 1024"},
		{"attribute of a cookie", 16384, func(n int) string {
			return `DestinationRule {host: web.example.com, trafficPolicy: {loadBalancer: {consistentHash: {httpCookie: {name: c, ttl: 0s, attributes: [{name: a, value: ` + long(n) + `}]}}}}}`
		}, "the value of the header has 16385"},
		{"failoverPriority", 24, func(n int) string {
			return `DestinationRule {host: web.example.com, trafficPolicy: {outlierDetection: {interval: 1s}, loadBalancer: {localityLbSetting: {failoverPriority: [` + labels(n) + `]}}}}`
		}, "there are at most 24 labels, not 25"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if p := errorsOf(t, c.line(c.most)); len(p) != 0 {
				t.Errorf("%d: refused: %v", c.most, p)
			}
			p := errorsOf(t, c.line(c.most+1))
			if !slices.ContainsFunc(p, func(s string) bool { return strings.Contains(s, c.want) }) {
				t.Errorf("%d: got %v, want %q", c.most+1, p, c.want)
			}
		})
	}
}

// errorsOf reads one object, written as its kind and specification on a line, and returns its
// errors.
func errorsOf(t *testing.T, line string) []string {
	t.Helper()
	kind, spec, _ := strings.Cut(line, " ")
	info, ok := Info(Kind(kind))
	if !ok {
		t.Fatalf("unknown kind %q", kind)
	}
	var out []string
	for _, p := range Parse("odd.yaml",
		[]byte("apiVersion: "+info.APIVersion()+"\nkind: "+kind+"\nmetadata: {name: odd, namespace: shop}\nspec: "+spec+"\n")).Problems {
		if p.Severity == feed.Error {
			out = append(out, p.String())
		}
	}
	return out
}
