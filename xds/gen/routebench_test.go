package gen

import (
	"fmt"
	"net/netip"
	"runtime"
	"testing"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// fleet is a mesh of n services with two HTTP ports and a VirtualService each. With spread, ports
// are all different.
type fleet struct {
	inputs  push.Inputs
	context *push.Context
}

func newFleet(n int, spread bool) *fleet {
	f := &fleet{inputs: push.Inputs{Mesh: &push.Mesh{Config: config.DefaultMesh(), Domain: "cluster.local"}}}
	for i := range n {
		f.joinAt(i, spread)
		f.weigh(i, 50)
	}
	f.context = push.Build(nil, f.inputs)
	return f
}

// join adds service i, on the ports that others have.
func (f *fleet) join(i int) { f.joinAt(i, false) }

func (f *fleet) joinAt(i int, spread bool) {
	ports := []registry.Port{{Number: 80, Name: "http", Protocol: registry.HTTP},
		{Number: 8080, Name: "grpc", Protocol: registry.GRPC}}
	if spread {
		ports[0].Number, ports[1].Number = uint32(10000+i), uint32(30000+i)
	}
	s := &registry.Service{
		Key:           registry.Key{Host: fleetHost(i), Namespace: "shop"},
		Ports:         ports,
		AutoAddresses: []netip.Addr{netip.AddrFrom4([4]byte{240, 240, byte(i >> 8), byte(i)})},
	}
	f.inputs.Services = f.inputs.Services.With(s.Key, s)
}

func fleetHost(i int) string { return fmt.Sprintf("svc-%05d.shop.svc.cluster.local", i) }

// weigh gives service i a VirtualService that shares requests out between two subsets.
func (f *fleet) weigh(i int, weight int32) {
	host := fleetHost(i)
	to := func(subset string, weight int32) *networking.HTTPRouteDestination {
		return &networking.HTTPRouteDestination{Destination: &networking.Destination{Host: host, Subset: subset},
			Weight: weight}
	}
	user := map[string]*networking.StringMatch{"x-user": {MatchType: &networking.StringMatch_Exact{Exact: "jason"}}}
	o := &config.Object{
		Key: config.Key{Kind: config.VirtualService, Namespace: "shop", Name: fmt.Sprintf("v%d", i)},
		Spec: &networking.VirtualService{
			Hosts: []string{host},
			Http: []*networking.HTTPRoute{
				{Match: []*networking.HTTPMatchRequest{{Headers: user}}, Route: []*networking.HTTPRouteDestination{to("v2", 0)}},
				{Route: []*networking.HTTPRouteDestination{to("v1", weight), to("v2", 100-weight)}},
			},
		},
	}
	f.inputs.Objects = f.inputs.Objects.With(o.Key, o)
}

// scope is what a sidecar sees.
func (f *fleet) scope() *push.Scope {
	f.context = push.Build(f.context, f.inputs)
	return f.context.Scope(f.context.Classify(testNode(push.Sidecar, "shop")))
}

func encodeAll(g *Generator, sc *push.Scope) (size int) {
	for r := range g.Set(resource.RouteType, sc).All() {
		size += len(r.Body())
	}
	return size
}

func BenchmarkRoutes(b *testing.B) {
	for _, spread := range []bool{false, true} {
		f := newFleet(1000, spread)
		sc := f.scope()
		b.Run(fmt.Sprintf("first/spread=%v", spread), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				encodeAll(New(), sc)
			}
		})
		b.Run(fmt.Sprintf("onechange/spread=%v", spread), func(b *testing.B) {
			g := New()
			held := g.Set(resource.RouteType, sc)
			encodeAll(g, sc)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				b.StopTimer()
				f.weigh(7, int32(i%100))
				sc := f.scope()
				b.StartTimer()
				set := g.Set(resource.RouteType, sc)
				encodeAll(g, sc)
				runtime.KeepAlive(held.Shared) // as a stream keeps what its client has
				held = set
			}
			runtime.KeepAlive(held.Shared)
		})
		b.Run(fmt.Sprintf("oneservice/spread=%v", spread), func(b *testing.B) {
			g, f := New(), newFleet(1000, spread)
			held := g.Set(resource.RouteType, f.scope())
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				b.StopTimer()
				f.join(1000 + i)
				sc := f.scope()
				b.StartTimer()
				set := g.Set(resource.RouteType, sc)
				runtime.KeepAlive(held.Shared)
				held = set
				b.StopTimer()
				f.inputs.Services = f.inputs.Services.Without(registry.Key{Host: fleetHost(1000 + i),
					Namespace: "shop"})
				b.StartTimer()
			}
			runtime.KeepAlive(held.Shared)
		})
		b.Run(fmt.Sprintf("unchanged/spread=%v", spread), func(b *testing.B) {
			g := New()
			held := g.Set(resource.RouteType, sc)
			b.ReportAllocs()
			for b.Loop() {
				held = g.Set(resource.RouteType, sc)
			}
			runtime.KeepAlive(held.Shared)
		})
	}
}
