package push_test

import (
	"math/rand/v2"
	"strconv"
	"testing"

	networking "istio.io/api/networking/v1alpha3"

	"google.golang.org/protobuf/proto"

	"github.com/google/go-cmp/cmp"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/push"
)

// FuzzBuild checks the invariants of Build: built step by step equals built at once, whatever the
// order; two proxies of equal facets see the same; nothing that was given is changed.
func FuzzBuild(f *testing.F) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for range 20 {
		seed := make([]byte, 90)
		for i := range seed {
			seed[i] = byte(rnd.IntN(256))
		}
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, edits []byte) {
		if len(edits) > 300 {
			edits = edits[:300]
		}
		e := newEditor()
		var c *push.Context
		before := map[*config.Object]proto.Message{}
		for i := 0; i+2 < len(edits); i += 3 {
			e.edit(edits[i], edits[i+1], edits[i+2])
			c = push.Build(c, e.in)
			for _, o := range e.in.Objects.All() {
				if before[o] == nil {
					before[o] = proto.Clone(o.Spec)
				}
			}
			if i%9 == 0 { // read it in between, so that caches are filled
				for _, n := range proxies() {
					describe(c, n)
				}
			}
		}
		if c == nil {
			return
		}
		fresh := push.Build(nil, e.in)
		seen := map[push.Facets]string{}
		for _, n := range proxies() {
			got := describe(c, n)
			if d := cmp.Diff(describe(fresh, n), got); d != "" {
				t.Errorf("proxy in %s: built step by step (+) differs from built at once (-):\n%s", n.Namespace, d)
			}
			facets := c.Classify(n)
			if other, ok := seen[facets]; ok && other != got {
				t.Errorf("equal facets, different scopes:\n%s", cmp.Diff(other, got))
			}
			seen[facets] = got
		}
		for o, spec := range before {
			if !proto.Equal(o.Spec, spec) {
				t.Errorf("%v was changed", o.Key)
			}
		}
	})
}

// Proxies in different namespaces with equal facets must see the same as a proxy that is classified
// alone: leaving the namespace out loses nothing.
func FuzzFacetsLoseNothing(f *testing.F) {
	rnd := rand.New(rand.NewPCG(5, 6))
	for range 20 {
		seed := make([]byte, 60)
		for i := range seed {
			seed[i] = byte(rnd.IntN(256))
		}
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, edits []byte) {
		if len(edits) > 300 {
			edits = edits[:300]
		}
		e := newEditor()
		for i := 0; i+2 < len(edits); i += 3 {
			e.edit(edits[i], edits[i+1], edits[i+2])
		}
		c := push.Build(nil, e.in)
		for _, n := range proxies() {
			facets := c.Classify(n)
			full := facets
			full.Namespace = n.Namespace
			a, b := c.Scope(facets), c.Scope(full)
			if d := cmp.Diff(listing(b), listing(a)); d != "" {
				t.Errorf("proxy in %s: seen by namespace (-), seen by facets (+):\n%s", n.Namespace, d)
			}
		}
	})
}

func listing(sc *push.Scope) []string {
	var out []string
	for _, d := range sc.Destinations.Items() {
		line := d.Service.Namespace + "/" + d.Service.Host
		if d.Rule != nil {
			line += " " + d.Rule.From[0].Key.String()
		}
		out = append(out, line)
	}
	for _, e := range sc.Egress.Items() {
		for _, s := range e.Services.Items() {
			out = append(out, "egress "+s.Namespace+"/"+s.Host)
		}
		for _, vs := range e.Routes.Items() {
			out = append(out, "route "+vs.Object.Key.String())
		}
	}
	return out
}

// What did not change keeps its pointer, so that what depends on it is not made again.
func TestPointersSurvive(t *testing.T) {
	t.Parallel()
	e := newEditor()
	for i, h := range hosts {
		e.service(namespaces[i%2], h)
		e.endpoints(namespaces[i%2], h, addresses[i])
	}
	e.edit(2, 0, 1)
	e.edit(3, 3, 1)
	first := push.Build(nil, e.in)
	n := node("c", "10.9.9.9")
	a := first.Scope(first.Classify(n))

	e.endpoints("a", hosts[0], "10.0.0.200")
	second := push.Build(first, e.in)
	b := second.Scope(second.Classify(n))
	if a.Destinations != b.Destinations || a.Egress != b.Egress {
		t.Error("an endpoint changed, and destinations or egress are other pointers")
	}
	if a.Endpoints == b.Endpoints || a == b {
		t.Error("an endpoint changed, and the scope is the same pointer")
	}
	if got, want := push.Compare(first, second), (push.Changes{Endpoints: 1}); got != want {
		t.Errorf("Compare: got %+v, want %+v", got, want)
	}

	e.edit(2, 0, 7)
	third := push.Build(second, e.in)
	d := third.Scope(third.Classify(n))
	if d.Destinations != b.Destinations {
		t.Error("a VirtualService changed, and the destinations are another pointer")
	}
	if d.Egress == b.Egress {
		t.Error("a VirtualService changed, and the egress is the same pointer")
	}
}

// An object that moved to another line of its file has another pointer in the inputs. Nothing that
// depends on it is computed again.
func TestMovedObjectLeavesScopesAlone(t *testing.T) {
	t.Parallel()
	e := newEditor()
	e.service("a", hosts[0])
	e.edit(2, 0, 1)
	e.edit(3, 0, 1)
	first := push.Build(nil, e.in)
	for k, o := range e.in.Objects.All() {
		moved := *o
		moved.Origin.Line++
		e.in.Objects = e.in.Objects.With(k, &moved)
	}
	second := push.Build(first, e.in)
	n := node("c", "10.9.9.9")
	if a, b := first.Scope(first.Classify(n)), second.Scope(second.Classify(n)); a != b {
		t.Error("an object moved, and the scope is another pointer")
	}
}

// BenchmarkBuildEndpoint is the cost of one changed endpoint in meshes of different sizes.
func BenchmarkBuildEndpoint(b *testing.B) {
	for _, size := range []int{1_000, 10_000} {
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			e := bigMesh(size)
			c := push.Build(nil, e.in)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				e.endpoints("a", "svc7", "10.0.0.1", "10.0.0."+strconv.Itoa(i%200))
				c = push.Build(c, e.in)
			}
		})
	}
}

// BenchmarkBuildRoute is the cost of one changed VirtualService in meshes of different sizes.
func BenchmarkBuildRoute(b *testing.B) {
	for _, size := range []int{1_000, 10_000} {
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			e := bigMesh(size)
			c := push.Build(nil, e.in)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				e.edit(2, 0, byte(i%2))
				c = push.Build(c, e.in)
			}
		})
	}
}

// BenchmarkScopeAfterRoute is what all proxies together cost beyond Build after one changed
// VirtualService.
func BenchmarkScopeAfterRoute(b *testing.B) {
	for _, size := range []int{1_000, 10_000} {
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			e := bigMesh(size)
			c := push.Build(nil, e.in)
			n := node("c", "10.9.9.9")
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				e.edit(2, 0, byte(i%2))
				c = push.Build(c, e.in)
				c.Scope(c.Classify(n))
			}
		})
	}
}

func bigMesh(size int) *editor {
	e := newEditor()
	for i := range size {
		host := "svc" + strconv.Itoa(i)
		e.service("a", host)
		e.endpoints("a", host, "10.1."+strconv.Itoa(i>>8)+"."+strconv.Itoa(i&255),
			"10.2."+strconv.Itoa(i>>8)+"."+strconv.Itoa(i&255))
		if i%10 == 0 {
			e.put(config.VirtualService, "a", host, &networking.VirtualService{Hosts: []string{host}})
		}
	}
	return e
}
