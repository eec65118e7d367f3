package gen

import (
	"fmt"
	"net/netip"
	"testing"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// bigMesh makes a mesh of n services with two ports and four endpoints each; every fifth has a rule
// with two subsets.
func bigMesh(n int) push.Inputs {
	in := push.Inputs{Mesh: &push.Mesh{Config: config.DefaultMesh(), Domain: "cluster.local"}}
	for i := range n {
		host := fmt.Sprintf("svc-%05d.shop.svc.cluster.local", i)
		k := registry.Key{Host: host, Namespace: "shop"}
		in.Services = in.Services.With(k, &registry.Service{Key: k, Ports: []registry.Port{
			{Number: 80, Name: "http", Protocol: registry.HTTP, TargetPort: 8080},
			{Number: 9000, Name: "grpc", Protocol: registry.GRPC},
		}})
		l := &registry.EndpointList{}
		for e := range 4 {
			l.Items = append(l.Items, bigEndpoint(i, e))
		}
		in.Endpoints = in.Endpoints.With(k, l)
		if i%5 == 0 {
			o := &config.Object{
				Key:  config.Key{Kind: config.DestinationRule, Namespace: "shop", Name: fmt.Sprintf("svc-%05d", i)},
				Hash: uint64(i),
				Spec: &networking.DestinationRule{Host: host, Subsets: []*networking.Subset{
					{Name: "v1", Labels: map[string]string{"version": "v1"}}, {Name: "v2", Labels: map[string]string{"version": "v2"}},
				}},
			}
			in.Objects = in.Objects.With(o.Key, o)
		}
	}
	return in
}

func bigEndpoint(service, n int) registry.Endpoint {
	return registry.Endpoint{
		Address: fmt.Sprintf("10.%d.%d.%d", n, service>>8, service&255), Namespace: "shop", Workload: "web",
		Labels: map[string]string{"app": "web", "version": []string{"v1", "v2"}[n%2]},
	}
}

// addressed gives each service an address of its own, so that its name does not mean its endpoints.
func addressed(in push.Inputs) push.Inputs {
	for k, s := range in.Services.All() {
		with := *s
		with.Addresses = []netip.Prefix{netip.MustParsePrefix("240.240.0.1/32")}
		in.Services = in.Services.With(k, &with)
	}
	return in
}

// withEndpoint adds an endpoint to service i.
func withEndpoint(in push.Inputs, i, n int) push.Inputs {
	k := registry.Key{Host: fmt.Sprintf("svc-%05d.shop.svc.cluster.local", i), Namespace: "shop"}
	old := in.Endpoints.At(k)
	l := &registry.EndpointList{Items: append(old.Items[:4:4], bigEndpoint(i, n))}
	in.Endpoints = in.Endpoints.With(k, l)
	return in
}

// scopes makes the scopes of an outside sidecar in successive contexts.
type scopes struct {
	context *push.Context
	node    push.Node
}

func (s *scopes) next(in push.Inputs) *push.Scope {
	s.context = push.Build(s.context, in)
	return s.context.Scope(s.context.Classify(s.node))
}

// encode makes every body of a set, as sending it would.
func encode(set resource.Set) (bytes int) {
	for r := range set.All() {
		bytes += len(r.Body())
	}
	return bytes
}

var benchSizes = []int{1000, 10000}

// BenchmarkFirst makes and encodes everything for the first proxy of a mesh.
func BenchmarkFirst(b *testing.B) {
	for _, typeURL := range []string{resource.ClusterType, resource.EndpointType, resource.ListenerType, resource.RouteType, resource.NameTableType} {
		for _, n := range benchSizes {
			b.Run(fmt.Sprintf("%s/%d", shortType(typeURL), n), func(b *testing.B) {
				sc := (&scopes{}).next(bigMesh(n))
				b.ReportAllocs()
				for b.Loop() {
					b.SetBytes(int64(encode(New().Set(typeURL, sc))))
				}
			})
		}
	}
}

// BenchmarkEndpoint is one more endpoint, up to the encoded assignments that differ.
func BenchmarkEndpoint(b *testing.B) {
	for _, n := range benchSizes {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			in, s, g := bigMesh(n), &scopes{}, New()
			before := g.Set(resource.EndpointType, s.next(in))
			clusters := g.Set(resource.ClusterType, s.next(in))
			encode(before)
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				b.StopTimer()
				i++
				in = withEndpoint(in, i%n, 5+i%200)
				sc := s.next(in)
				b.StartTimer()
				now := g.Set(resource.EndpointType, sc)
				old := before.Shared.Items()
				for i, r := range now.Shared.Items() {
					if r != old[i] {
						r.Version()
					}
				}
				if g.Set(resource.ClusterType, sc) != clusters {
					b.Fatal("an endpoint changed the clusters")
				}
				before = now
			}
		})
	}
}

// BenchmarkService is one more service, up to the encoded cluster.
func BenchmarkService(b *testing.B) {
	for _, n := range benchSizes {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			in, s, g := bigMesh(n), &scopes{}, New()
			held := []resource.Set{g.Set(resource.ClusterType, s.next(in)), g.Set(resource.EndpointType, s.next(in))}
			encode(held[0])
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				k := registry.Key{Host: "added.shop.svc.cluster.local", Namespace: "shop"}
				in.Services = in.Services.With(k, &registry.Service{Key: k,
					Ports: []registry.Port{{Number: 80, Name: "http", Protocol: registry.HTTP}}})
				sc := s.next(in)
				b.StartTimer()
				held = []resource.Set{g.Set(resource.ClusterType, sc), g.Set(resource.EndpointType, sc)}
			}
			_ = held
		})
	}
}

func shortType(url string) string {
	for i := len(url) - 1; i >= 0; i-- {
		if url[i] == '.' {
			return url[i+1:]
		}
	}
	return url
}
