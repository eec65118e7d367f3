package gen

import (
	"fmt"
	"net/netip"
	"runtime"
	"testing"

	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// benchMesh is the mesh of make bench: 1,000 services with 4 endpoints each, every tenth with a
// VirtualService and a DestinationRule of two subsets.
func benchMesh() push.Inputs {
	in := push.Inputs{Mesh: &push.Mesh{Config: config.DefaultMesh(), Domain: "cluster.local"}}
	for i := range 1000 {
		k := benchKey(i)
		in.Services = in.Services.With(k, &registry.Service{Key: k,
			Addresses: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{240, 240, byte(i >> 8), byte(i)}), 32)},
			Ports:     []registry.Port{{Number: 80, Name: "http", Protocol: registry.HTTP, TargetPort: 8080}}})
		in.Endpoints = in.Endpoints.With(k, benchEndpoints(i, 4))
		if i%10 == 0 {
			in = withWeight(in, i, 50)
			in = withObject(in, config.DestinationRule, i, &networking.DestinationRule{Host: k.Host,
				Subsets: []*networking.Subset{{Name: "v1", Labels: map[string]string{"version": "v1"}},
					{Name: "v2", Labels: map[string]string{"version": "v2"}}}})
		}
	}
	return in
}

func benchKey(i int) registry.Key {
	return registry.Key{Host: fmt.Sprintf("svc-%04d.shop.svc.cluster.local", i), Namespace: "shop"}
}

func benchEndpoints(service, n int) *registry.EndpointList {
	l := &registry.EndpointList{}
	for e := range n {
		l.Items = append(l.Items, registry.Endpoint{
			Address: fmt.Sprintf("10.%d.%d.%d", e, service>>8, service&255), Namespace: "shop", Workload: "web",
			ServiceAccount: "web", TLSMode: registry.TLSModeIstio,
			Labels: map[string]string{"app": "web", "version": []string{"v1", "v2"}[e%2]},
		})
	}
	return l
}

// withWeight gives service i a VirtualService that sends weight percent of its requests to v1.
func withWeight(in push.Inputs, i int, weight int32) push.Inputs {
	host := benchKey(i).Host
	to := func(subset string, weight int32) *networking.HTTPRouteDestination {
		d := &networking.Destination{Host: host, Subset: subset}
		return &networking.HTTPRouteDestination{Destination: d, Weight: weight}
	}
	return withObject(in, config.VirtualService, i, &networking.VirtualService{Hosts: []string{host},
		Http: []*networking.HTTPRoute{{Route: []*networking.HTTPRouteDestination{to("v1", weight), to("v2", 100-weight)}}}})
}

func withObject(in push.Inputs, kind config.Kind, i int, spec proto.Message) push.Inputs {
	o := &config.Object{Key: config.Key{Kind: kind, Namespace: "shop", Name: fmt.Sprintf("svc-%04d", i)}, Spec: spec}
	in.Objects = in.Objects.With(o.Key, o)
	return in
}

// benchProxy is a sidecar outside of the mesh's workloads, which sees everything.
type benchProxy struct {
	generator *Generator
	context   *push.Context
	sets      map[string]resource.Set
}

func newBenchProxy() *benchProxy {
	return &benchProxy{generator: New(), sets: map[string]resource.Set{}}
}

// scope is what the proxy sees.
func (p *benchProxy) scope(in push.Inputs) *push.Scope {
	p.context = push.Build(p.context, in)
	node := testNode(push.Sidecar, "shop")
	node.Identity = true
	return p.context.Scope(p.context.Classify(node))
}

// take makes and encodes every resource that the proxy does not have yet.
func (p *benchProxy) take(sc *push.Scope) {
	for typeURL := range p.generator.kinds {
		before, now := p.sets[typeURL], p.generator.Set(typeURL, sc)
		if before == now {
			continue
		}
		for r := range now.All() {
			if before.Get(r.Name) != r {
				r.Version()
			}
		}
		p.sets[typeURL] = now
	}
}

// BenchmarkProxy is everything that is generated for one sidecar: first, and after one change.
func BenchmarkProxy(b *testing.B) {
	b.Run("first", func(b *testing.B) {
		sc := newBenchProxy().scope(benchMesh())
		b.ReportAllocs()
		for b.Loop() {
			newBenchProxy().take(sc)
		}
	})
	b.Run("next", func(b *testing.B) {
		in, first := benchMesh(), newBenchProxy()
		first.take(first.scope(in))
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			b.StopTimer()
			var ips intern.Lists[netip.Addr]
			node := testNode(push.Sidecar, "shop")
			ip := netip.MustParseAddr(benchEndpoints(i%1000, 1).Items[0].Address)
			node.Identity, node.IPs = true, ips.Of([]netip.Addr{ip})
			sc := first.context.Scope(first.context.Classify(node))
			b.StartTimer()
			(&benchProxy{generator: first.generator, sets: map[string]resource.Set{}}).take(sc)
		}
		runtime.KeepAlive(first)
	})
	for name, change := range map[string]func(push.Inputs, int) push.Inputs{
		"route": func(in push.Inputs, i int) push.Inputs { return withWeight(in, 70, int32(i%100)) },
		"endpoint": func(in push.Inputs, i int) push.Inputs {
			in.Endpoints = in.Endpoints.With(benchKey(70), benchEndpoints(70, 4+i%100))
			return in
		},
	} {
		b.Run(name, func(b *testing.B) {
			in, p := benchMesh(), newBenchProxy()
			p.take(p.scope(in))
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				b.StopTimer()
				in = change(in, i)
				sc := p.scope(in)
				b.StartTimer()
				p.take(sc)
			}
			runtime.KeepAlive(p)
		})
	}
}
