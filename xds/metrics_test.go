package xds_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ashore-mesh/ashore/internal/testport"
	"github.com/ashore-mesh/ashore/xds"
	"github.com/ashore-mesh/ashore/xds/resource"
	"github.com/ashore-mesh/ashore/xds/xdstest"
)

// A proxy that takes the next version, or leaves, does not count as refusing any more.
func TestRefusingIsCountedDown(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	p := newPlane(t, nil, testport.Address(t), func(c *xds.Config) { c.Registerer = reg })
	bad := xdstest.Route("r1", "b").Body()
	e := xdstest.NewEnvoy(xdstest.Config{Addr: p.addr, ID: xdstest.NodeID("web", "10.0.0.1"), Delta: true,
		Reject: func(_, _ string, body []byte) string {
			if bytes.Equal(body, bad) {
				return "it is bad"
			}
			return ""
		}})
	counts := func(want float64) {
		t.Helper()
		eventually(t, func() string {
			families, err := reg.Gather()
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range families {
				if f.GetName() == "pilot_xds_rds_reject" && f.Metric[0].Gauge.GetValue() != want {
					return "the gauge does not say what it should: " + f.String()
				}
			}
			return latest(p.server)
		})
	}
	clusters := slices.Concat(serving("a", 1), serving("b", 1), serving("c", 1))
	routes := func(cluster string) []*resource.Resource { return slices.Concat(clusters, chain(1, cluster)) }
	p.publish(routes("a")...)
	leave := connect(t, e)
	eventually(t, func() string { return has(e, 3, "r1", "a") })
	p.publish(routes("b")...)
	counts(1)
	p.publish(routes("c")...)
	eventually(t, func() string { return has(e, 3, "r1", "c") })
	counts(0)
	p.publish(routes("b")...)
	counts(1)
	leave()
	counts(0)
}

// Versions are the clients' own text: they leave with the last client, and there are never more
// than so many.
func TestVersionsAreBounded(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	p := newPlane(t, nil, testport.Address(t), func(c *xds.Config) { c.Registerer = reg })
	p.publish()
	series := func(most int) string {
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() == "pilot_xds" && len(f.Metric) > most {
				return fmt.Sprintf("%d versions, want at most %d", len(f.Metric), most)
			}
		}
		return ""
	}
	var leaves []func()
	for i := range 100 {
		leaves = append(leaves, connect(t, xdstest.NewEnvoy(xdstest.Config{Addr: p.addr,
			ID: xdstest.NodeID(fmt.Sprint(i), "10.0.0.1"), Version: fmt.Sprint("1.", i), Delta: true})))
	}
	eventually(t, func() string {
		if n := len(p.server.Proxies()); n != 100 {
			return fmt.Sprintf("%d of 100 are connected", n)
		}
		return ""
	})
	if s := series(65); s != "" {
		t.Error(s)
	}
	for _, leave := range leaves {
		leave()
	}
	eventually(t, func() string { return series(0) })
}
