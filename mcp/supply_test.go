package mcp

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/spiffe"
	"github.com/ashore-mesh/ashore/mcp/legacypb"
	"github.com/ashore-mesh/ashore/push"
)

const gatewayList, entryList = "istio/networking/v1alpha3/gateways", "istio/networking/v1alpha3/serviceentries"

// testMesh is a catalog whose Gateways a test changes: "a=a.test b=b.test".
type testMesh struct {
	*Catalog
	objects push.Objects
}

func newMesh(t *testing.T) *testMesh {
	t.Helper()
	return &testMesh{Catalog: NewCatalog(CatalogConfig{})}
}

func (m *testMesh) set(t *testing.T, text string) {
	t.Helper()
	want := map[config.Key]string{}
	for _, f := range strings.Fields(text) {
		name, host, _ := strings.Cut(f, "=")
		want[config.Key{Kind: config.Gateway, Namespace: "s", Name: name}] = host
	}
	for key := range m.objects.All() {
		if want[key] == "" {
			m.objects = m.objects.Without(key)
		}
	}
	for key, host := range want {
		o := &config.Object{Key: key, Spec: &networking.Gateway{Selector: map[string]string{"a": "b"},
			Servers: []*networking.Server{{Port: &networking.Port{Number: 80, Name: "http", Protocol: "HTTP"}, Hosts: []string{host}}}}}
		if problems, ok := config.Accept(o); !ok {
			t.Fatal(problems)
		}
		if old := m.objects.At(key); old == nil || old.Hash != o.Hash {
			m.objects = m.objects.With(key, o)
		}
	}
	m.Publish(m.objects)
}

// answers shows what a supply says next, as a sink reads it: "gateways 1 full +s/a -s/b".
func answers(t *testing.T, s *supply) string {
	t.Helper()
	var out []string
	for m := s.next(); m != nil; m = s.next() {
		raw, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		r := &legacypb.Resources{}
		if err := proto.Unmarshal(raw, r); err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprintf("%s %s", r.Collection[strings.LastIndex(r.Collection, "/")+1:], r.Nonce)
		if !r.Incremental {
			text += " full"
		}
		for _, res := range r.Resources {
			text += " +" + res.Metadata.Name
		}
		for _, name := range r.RemovedResources {
			text += " -" + name
		}
		out = append(out, text)
	}
	return strings.Join(out, "; ")
}

// Each step is a request or a change of the mesh, and what is answered then.
func TestSupply(t *testing.T) {
	t.Parallel()
	type step struct {
		mesh string // when not empty: what it becomes; "-": nothing
		ask  *legacypb.RequestResources
		is   receipt
		want string
	}
	ask := func(collection, nonce string, incremental bool) *legacypb.RequestResources {
		return &legacypb.RequestResources{Collection: collection, ResponseNonce: nonce, Incremental: incremental}
	}
	nack := func(collection, nonce string, incremental bool) *legacypb.RequestResources {
		r := ask(collection, nonce, incremental)
		r.ErrorDetail = &statuspb.Status{Code: 3, Message: "no"}
		return r
	}
	for name, steps := range map[string][]step{
		"a sink that takes no differences is sent everything at each change": {
			{ask: ask(gatewayList, "", false), want: "gateways 1 full +s/a +s/b"},
			{ask: ask(gatewayList, "1", false), is: taken},
			{mesh: "a=a.test b=c.test", want: "gateways 2 full +s/a +s/b"},
		},
		"the first answer is everything, differences follow": {
			{ask: ask(gatewayList, "", true), want: "gateways 1 full +s/a +s/b"},
			{ask: ask(gatewayList, "1", true), is: taken},
			{mesh: "a=a.test c=c.test", want: "gateways 2 +s/c -s/b"},
			{mesh: "a=d.test c=c.test"},
			{ask: ask(gatewayList, "2", true), is: taken, want: "gateways 3 +s/a"},
		},
		"the first answer of the second collection is everything as well": {
			{ask: ask(entryList, "", true), want: "serviceentries 1 full"},
			{ask: ask(gatewayList, "", true), want: "gateways 2 full +s/a +s/b"},
		},
		"an empty collection is answered": {
			{ask: ask(entryList, "", false), want: "serviceentries 1 full"},
			{ask: ask(entryList, "1", false), is: taken},
		},
		"one answer is under way at a time, and what happens meanwhile is one": {
			{ask: ask(gatewayList, "", true), want: "gateways 1 full +s/a +s/b"},
			{mesh: "c=c.test"},
			{mesh: "a=a.test"},
			{ask: ask(gatewayList, "1", true), is: taken, want: "gateways 2 -s/b"},
		},
		"a change and back is no change": {
			{ask: ask(gatewayList, "", true), want: "gateways 1 full +s/a +s/b"},
			{mesh: "-"},
			{mesh: "a=a.test b=b.test"},
			{ask: ask(gatewayList, "1", true), is: taken},
		},
		"stale answers are left out": {
			{ask: ask(gatewayList, "", true), want: "gateways 1 full +s/a +s/b"},
			{ask: ask(gatewayList, "7", true), is: stale},
			{ask: ask(gatewayList, "1", true), is: taken},
			{ask: ask(gatewayList, "1", true), is: stale},
			{ask: ask(entryList, "1", true), is: stale},
		},
		"what was refused is not sent again until it changes, and then whole": {
			{ask: ask(gatewayList, "", true), want: "gateways 1 full +s/a +s/b"},
			{ask: nack(gatewayList, "1", true), is: refused},
			{mesh: "a=a.test", want: "gateways 2 full +s/a"},
			{ask: ask(gatewayList, "2", true), is: taken},
		},
		"a refused difference leaves nothing certain": {
			{ask: ask(gatewayList, "", true), want: "gateways 1 full +s/a +s/b"},
			{ask: ask(gatewayList, "1", true), is: taken},
			{mesh: "a=a.test b=c.test", want: "gateways 2 +s/b"},
			{ask: nack(gatewayList, "2", true), is: refused},
			{mesh: "a=a.test b=d.test", want: "gateways 3 full +s/a +s/b"},
		},
		"who asks anew is told everything": {
			{ask: ask(gatewayList, "", true), want: "gateways 1 full +s/a +s/b"},
			{ask: ask(gatewayList, "1", true), is: taken},
			{ask: ask(gatewayList, "", true), want: "gateways 2 full +s/a +s/b"},
		},
		"collections of old releases are empty": {
			{ask: ask("istio/rbac/v1alpha1/rbacconfigs", "", false), want: "rbacconfigs 1 full"},
			{ask: ask("istio/networking/v1alpha3/synthetic/serviceentries", "", false), want: "serviceentries 2 full"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMesh(t)
			m.set(t, "a=a.test b=b.test")
			s := &supply{find: m.Collection}
			for i, step := range steps {
				if step.mesh != "" {
					m.set(t, strings.Trim(step.mesh, "-"))
				}
				if step.ask != nil {
					if is, err := s.receive(step.ask, time.Time{}); err != nil || is != step.is {
						t.Errorf("step %d: received as %v, %v, want %v", i, is, err, step.is)
					}
				}
				if got := answers(t, s); got != step.want {
					t.Errorf("step %d: says %q, want %q", i, got, step.want)
				}
			}
		})
	}
}

// A collection that nobody has ever heard of is refused: an empty answer would look like an empty mesh.
func TestSupplyUnknown(t *testing.T) {
	t.Parallel()
	s := &supply{find: newMesh(t).Collection}
	if _, err := s.receive(&legacypb.RequestResources{Collection: "istio/networking/v9/gateways"}, time.Time{}); err == nil {
		t.Error("accepted")
	}
	for _, name := range []string{meshType, gatewayV1} { // those are for xDS, and the first holds no objects
		if _, err := s.receive(&legacypb.RequestResources{Collection: name}, time.Time{}); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
	if is, err := s.receive(&legacypb.RequestResources{Collection: triggerCollection, ResponseNonce: "1"}, time.Time{}); err != nil || is != stale {
		t.Errorf("an answer to nothing: %v, %v", is, err)
	}
}

// Versions are hashes of contents: equal in two catalogs, and other when the content is.
func TestCatalogVersions(t *testing.T) {
	t.Parallel()
	one, two := newMesh(t), newMesh(t)
	one.set(t, "a=a.test b=b.test")
	two.set(t, "b=b.test")
	two.set(t, "a=a.test b=b.test")
	version := func(m *testMesh, name string) string {
		set, ok := m.Set(gatewayV1)
		if !ok || set.Get(name) == nil {
			t.Fatalf("no %s", name)
		}
		return set.Get(name).Version()
	}
	if version(one, "s/a") != version(two, "s/a") || version(one, "s/a") == version(one, "s/b") {
		t.Error("versions are not those of the contents")
	}
	was := version(one, "s/a")
	set, _ := one.Set(gatewayV1)
	b := set.Get("s/b")
	one.set(t, "a=c.test b=b.test")
	if version(one, "s/a") == was {
		t.Error("another content has the same version")
	}
	if set, _ := one.Set(gatewayOld); set.Get("s/b") != b {
		t.Error("what did not change was made anew, or another name of the kind holds other resources")
	}
}

// Who may read.
func TestReaders(t *testing.T) {
	t.Parallel()
	id := func(ns, sa string) spiffe.ID { return spiffe.ID{TrustDomain: "td", Namespace: ns, ServiceAccount: sa} }
	root := Readers{RootNamespace: "istio-system", TrustDomain: "td"}
	named := Readers{Identities: []spiffe.ID{id("ops", "peer")}}
	for _, c := range []struct {
		readers Readers
		who     spiffe.ID
		may     bool
	}{
		{root, id("istio-system", "istiod"), true},
		{root, id("shop", "web"), false},
		{root, spiffe.ID{TrustDomain: "other", Namespace: "istio-system", ServiceAccount: "istiod"}, false},
		{root, spiffe.ID{}, false},
		{named, id("ops", "peer"), true},
		{named, id("istio-system", "istiod"), false},
		{Readers{}, id("", "x"), false},
		{Readers{Anybody: true}, spiffe.ID{}, true},
	} {
		if err := c.readers.May(c.who); (err == nil) != c.may {
			t.Errorf("%+v, %s: got %v, want %v", c.readers, c.who, err, c.may)
		}
	}
}

// Whatever a sink says, in whatever order, there is one answer of a collection under way at most, and nothing breaks.
func FuzzRequests(f *testing.F) {
	for _, r := range []*legacypb.RequestResources{{Collection: gatewayList, Incremental: true}, {Collection: gatewayList, ResponseNonce: "1", ErrorDetail: &statuspb.Status{}}} {
		raw, err := proto.Marshal(r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw, raw)
	}
	f.Fuzz(func(t *testing.T, a, b []byte) {
		m := newMesh(t)
		m.set(t, "a=a.test")
		s := &supply{find: m.Collection}
		var flying []string
		for i, raw := range [][]byte{a, b, a, b} {
			r := &legacypb.RequestResources{}
			if proto.Unmarshal(raw, r) != nil {
				return
			}
			if _, err := s.receive(r, time.Time{}); err != nil {
				return
			}
			flying = slices.DeleteFunc(flying, func(c string) bool { return c == r.Collection })
			if i == 2 {
				m.set(t, "a=b.test b=b.test")
			}
			for m := s.next(); m != nil; m = s.next() {
				if slices.Contains(flying, m.Collection) {
					t.Fatalf("a second answer of %s", m.Collection)
				}
				flying = append(flying, m.Collection)
			}
		}
	})
}
