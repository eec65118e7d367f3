package push

import (
	"runtime"
	"strconv"
	"testing"

	mesh "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/memo"
	"github.com/ashore-mesh/ashore/registry"
)

// counted is f, counting its calls in n.
func counted[In comparable, Out any](n *int, f func(In) *Out) *memo.Func[In, Out] {
	return memo.New(func(in In) *Out { *n++; return f(in) })
}

// What a context was asked for is found again by the next one, whenever the garbage collector runs: what did
// not change is not made anew.
func TestHeldThroughCollection(t *testing.T) {
	t.Parallel()
	var in Inputs
	in.Mesh = &Mesh{Config: &mesh.MeshConfig{RootNamespace: "root"}, Domain: "cluster.local"}
	key := registry.Key{Host: "web.example.com", Namespace: "a"}
	in.Services = in.Services.With(key, &registry.Service{Key: key})
	put := func(kind config.Kind, name string, o *config.Object) {
		o.Key = config.Key{Kind: kind, Namespace: "a", Name: name}
		in.Objects = in.Objects.With(o.Key, o)
	}
	put(config.Gateway, "gw", &config.Object{Hash: 1, Spec: &networking.Gateway{Servers: []*networking.Server{{Port: &networking.Port{Number: 80}}}}})
	put(config.Sidecar, "s", &config.Object{Hash: 2, Spec: &networking.Sidecar{}})

	var visibles, servers int
	first := Build(nil, in)
	first.tables.visible = counted(&visibles, newVisible)
	first.tables.serverView = counted(&servers, newServerView)
	ask := func(c *Context) {
		for _, n := range []Node{{Type: Router, Namespace: "gateways"}, {Namespace: "a"}} {
			c.Scope(c.Classify(n))
		}
	}
	ask(first)
	if visibles != 2 || servers != 1 {
		t.Fatalf("computed %d and %d at first, want 2 and 1", visibles, servers)
	}
	for i := range 3 {
		in.Endpoints = in.Endpoints.With(key, &registry.EndpointList{Items: []registry.Endpoint{{Address: "10.0.0." + strconv.Itoa(i)}}})
		first = Build(first, in)
		runtime.GC()
		runtime.GC()
		if i > 0 { // in a storm nobody looks at some contexts
			ask(first)
		}
	}
	put(config.Sidecar, "s", &config.Object{Hash: 3, Spec: &networking.Sidecar{Egress: []*networking.IstioEgressListener{{Hosts: []string{"./*"}}}}})
	runtime.GC()
	runtime.GC()
	ask(Build(first, in))
	if visibles != 2 || servers != 1 {
		t.Errorf("computed services of a namespace %d times and gateway servers %d times, want 2 and 1: nothing that they depend on changed", visibles, servers)
	}
}
