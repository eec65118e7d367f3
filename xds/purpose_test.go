package xds_test

import (
	"fmt"
	"testing"
)

// An agent has a stream of its own beside Envoy's. Only its own registers the workload, both have
// the labels of the group, and operators see one proxy.
func TestAgentStreams(t *testing.T) {
	t.Parallel()
	a, rt, p := registering(t)
	cert := a.web()
	stream := func(purpose string) *line {
		t.Helper()
		l, version := call(t, p, cert), ""
		if purpose == "control" {
			version = "v1"
		}
		if err := l.connects(node(t, map[string]any{"AUTO_REGISTER_GROUP": "web", "ASHORE_STREAM": purpose,
			"ASHORE_VERSION": version})); err != nil {
			t.Fatal(err)
		}
		return l
	}
	proxies := func(types ...int) {
		t.Helper()
		eventually(t, func() string {
			var got []int
			for _, s := range p.server.Proxies() {
				got = append(got, len(s.Types))
			}
			if fmt.Sprint(got) != fmt.Sprint(types) {
				return fmt.Sprintf("proxies with %v types, want %v", got, types)
			}
			return ""
		})
	}
	config := stream("config")
	becomes(t, rt, "")
	proxies(1)
	control := stream("control")
	becomes(t, rt, "shop/web-10.0.0.1 of web")
	control.reports("")
	becomes(t, rt, "shop/web-10.0.0.1 of web, healthy")
	proxies(2)
	if s := p.server.Proxies()[0]; s.Health.At.IsZero() || s.Agent != "v1" {
		t.Errorf("without what the agent says: %+v", s)
	}
	if d, err := p.server.Dump("web.shop"); err != nil || len(d) != 2 {
		t.Errorf("the dump has %d types, want those of both streams; error %v", len(d), err)
	}
	config.hang()
	proxies(1)
	becomes(t, rt, "shop/web-10.0.0.1 of web, healthy")
	control.hang()
	proxies()
	becomes(t, rt, "shop/web-10.0.0.1 of web, gone, healthy")
}
