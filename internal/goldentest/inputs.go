package goldentest

import (
	"context"
	"net/netip"
	"slices"
	"testing"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/registry/entry"
)

// Inputs are what a context is built of: the objects and the services that they declare, in a mesh of default
// settings. Services that name no address get one from addresses.
func Inputs(t testing.TB, objects []*config.Object, addresses entry.Addresses) push.Inputs {
	t.Helper()
	in := push.Inputs{Mesh: &push.Mesh{Config: config.DefaultMesh(), Domain: "cluster.local"}}
	for _, o := range objects {
		in.Objects = in.Objects.With(o.Key, o)
	}
	for _, u := range entry.New(addresses).Derive(context.Background(), in.Objects).Updates {
		for _, p := range u.Problems {
			t.Fatalf("service: %v", p)
		}
		for _, i := range u.Items {
			in.Services = in.Services.With(i.Service.Key, i.Service)
			in.Endpoints = in.Endpoints.With(i.Service.Key, i.Endpoints)
		}
	}
	return in
}

// Counting gives out 240.240.0.1, 240.240.0.2, … in the order of keys.
type Counting struct{}

// Release does nothing: what was given stays as it is.
func (Counting) Release([]registry.Key) {}

// Lost are none.
func (Counting) Lost() []registry.Key { return nil }

// Losing never tells of any.
func (Counting) Losing() <-chan struct{} { return nil }

// Allocate gives each of keys an address.
func (Counting) Allocate(_ context.Context, keys []registry.Key) (map[registry.Key][]netip.Addr, error) {
	keys = slices.Clone(keys)
	slices.SortFunc(keys, registry.Key.Compare)
	out := map[registry.Key][]netip.Addr{}
	for i, k := range keys {
		out[k] = []netip.Addr{netip.AddrFrom4([4]byte{240, 240, byte((i + 1) >> 8), byte(i + 1)})}
	}
	return out, nil
}
