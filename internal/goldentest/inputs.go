package goldentest

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/registry/entry"
)

// Inputs are what a context is built of: the objects and the services that they declare, in a mesh
// of default settings. vip returns the virtual IP of the n-th host that wants one, in the order of
// hosts.
func Inputs(t testing.TB, objects []*config.Object, vip func(host string, n int) netip.Addr) push.Inputs {
	t.Helper()
	in := push.Inputs{Mesh: &push.Mesh{Config: config.DefaultMesh(), Domain: "cluster.local"}}
	for _, o := range objects {
		in.Objects = in.Objects.With(o.Key, o)
	}
	var all []registry.Instances
	var hosts []string
	for _, u := range entry.New(nil).Derive(in.Objects).Updates {
		for _, p := range u.Problems {
			t.Fatalf("service: %v", p)
		}
		for _, i := range u.Items {
			all = append(all, i)
			if i.Service.WantsAddress() {
				hosts = append(hosts, i.Service.Host)
			}
		}
	}
	slices.Sort(hosts)
	hosts = slices.Compact(hosts)
	for _, i := range all {
		if n, wants := slices.BinarySearch(hosts, i.Service.Host); wants {
			s := *i.Service
			s.AutoAddresses = []netip.Addr{vip(s.Host, n)}
			i.Service = &s
		}
		in.Services = in.Services.With(i.Service.Key, i.Service)
		in.Endpoints = in.Endpoints.With(i.Service.Key, i.Endpoints)
	}
	return in
}

// Counting returns 240.240.0.1, 240.240.0.2, … for Inputs.
func Counting(_ string, n int) netip.Addr {
	return netip.AddrFrom4([4]byte{240, 240, byte((n + 1) >> 8), byte(n + 1)})
}
