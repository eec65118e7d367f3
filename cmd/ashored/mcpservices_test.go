package main

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"
	mcpv1 "istio.io/api/mcp/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/testlog"
	"github.com/ashore-mesh/ashore/mcp"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/registry/entry"
)

// told is what other control planes are told after all that has been said: each object with where it is from, and of
// ServiceEntries the addresses.
func (m *market) told(s *synthesis) []string {
	time.Sleep(time.Second) // builds keep a distance
	synctest.Wait()
	var out []string
	for k, o := range s.objects(m.context().Inputs()).All() {
		text := fmt.Sprintf("%s %s", k.Name, o.Origin.Source)
		if se, ok := o.Spec.(*networking.ServiceEntry); ok {
			for _, ep := range se.Endpoints {
				text += " " + ep.Address
			}
		}
		out = append(out, text)
	}
	return out
}

// What registries know is told as ServiceEntries, unless an object says so that is told anyway; what another control plane has
// told us is none of those. It follows what changes.
func TestSynthesis(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMarket(t)
		catalog := mcp.NewCatalog(mcp.CatalogConfig{})
		s := &synthesis{supplied: m.supplied, derived: m.derived, tells: catalog.Tells, log: testlog.New(t)}
		check := func(what string, want ...string) {
			t.Helper()
			if got := m.told(s); !slices.Equal(got, want) {
				t.Errorf("%s: %q, want %q", what, got, want)
			}
		}
		m.reads(t, "")
		m.knows(true, "web.service.consul", registry.Endpoint{Address: "10.0.0.1", Namespace: "shop"}, registry.Endpoint{Address: "10.0.0.2", Namespace: "shop", Health: registry.Unhealthy})
		m.knows(false, "db.service.consul", registry.Endpoint{Address: "10.0.0.9"})
		check("services", "registry-db.service.consul consul 10.0.0.9", "registry-web.service.consul consul 10.0.0.1")
		before := s.all
		check("nothing new", "registry-db.service.consul consul 10.0.0.9", "registry-web.service.consul consul 10.0.0.1")
		if s.all != before {
			t.Error("nothing has changed, and the objects are others")
		}
		m.knows(false, "db.service.consul", registry.Endpoint{Address: "10.0.0.8"})
		check("a change", "registry-db.service.consul consul 10.0.0.8", "registry-web.service.consul consul 10.0.0.1")
		m.reads(t, marketFile)
		check("declared by an object that is told", "registry-db.service.consul consul 10.0.0.8", "web file:/etc/x", "vm-1 file:/etc/x")
		m.readsFrom(t, "mcp:peer", marketFile)
		check("declared by an object of another control plane", "registry-db.service.consul consul 10.0.0.8", "registry-web.service.consul consul 10.0.0.1", "web mcp:peer", "vm-1 mcp:peer")
		m.reads(t, "")
		m.knows(false, "web.service.consul", registry.Endpoint{Address: "unix:///x y", Namespace: "shop"}, registry.Endpoint{Address: "no name", Namespace: "shop"})
		check("no valid ServiceEntry", "registry-db.service.consul consul 10.0.0.8")
		m.dc1.say <- feed.Batch[registry.Instances]{Full: true}
		check("nothing")
	})
}

// Readers are told what the registry says now, also where an object of another control plane counts here, so that nothing
// that counts changes; they are woken for it.
func TestSynthesisOfWhatIsHidden(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := defaults()
		s.MCP.Readers, s.MCP.Services, s.Merge.Endpoints = []string{"rootNamespace"}, true, "shadow"
		if err := s.check("test.yaml"); err != nil {
			t.Fatal(err)
		}
		in, err := newInformants(s, nil, testlog.New(t))
		if err != nil {
			t.Fatal(err)
		}
		built := 0
		m := newMarket(t, func(c *push.AssemblerConfig) {
			c.Merging, c.Hidden = s.Merge.rules(), in.hidden
			c.Publish = func(c *push.Context, _ push.Changes) { built++; in.publish(c.Inputs()) }
		})
		in.synthesize(s, m.supplied, m.derived, testlog.New(t))
		addresses := func() (out []string) {
			time.Sleep(time.Second) // builds keep a distance
			synctest.Wait()
			set, ok := in.catalog.Set("networking.istio.io/v1/ServiceEntry")
			if !ok {
				t.Fatal("there are no ServiceEntries")
			}
			for r := range set.All() {
				var res mcpv1.Resource
				se := &networking.ServiceEntry{}
				if err := errors.Join(proto.Unmarshal(r.Body(), &res), res.GetBody().UnmarshalTo(se)); err != nil {
					t.Fatal(err)
				}
				for _, ep := range se.Endpoints {
					out = append(out, ep.Address)
				}
			}
			return out
		}
		m.readsFrom(t, "mcp:peer", marketFile)
		m.knows(true, "web.service.consul", registry.Endpoint{Address: "10.0.0.7", Namespace: "shop"})
		if got := addresses(); !slices.Equal(got, []string{"10.0.0.7"}) {
			t.Fatalf("told is %q", got)
		}
		before := built
		m.knows(false, "web.service.consul", registry.Endpoint{Address: "10.0.0.8", Namespace: "shop"})
		if got := addresses(); !slices.Equal(got, []string{"10.0.0.8"}) || built != before {
			t.Errorf("told is %q after %d more contexts, want the new address after none", got, built-before)
		}
		m.dc1.say <- feed.Batch[registry.Instances]{Full: true}
		if got := addresses(); len(got) > 0 || built != before {
			t.Errorf("told is %q after %d more contexts, and no registry has it", got, built-before)
		}
	})
}

// An object that an operator wrote under the name of ours stays, and ours comes when it goes.
func TestSynthesisIsNoOperators(t *testing.T) {
	t.Parallel()
	k := registry.Key{Host: "web", Namespace: "shop"}
	svc := registry.Instances{Service: &registry.Service{Key: k, Ports: []registry.Port{{Number: 80}}, Source: "consul"}, Endpoints: &registry.EndpointList{}}
	s := &synthesis{derived: "serviceentry", tells: func(*config.Object) bool { return true }, log: testlog.New(t), supplied: func(registry.Key) (push.Supplied, bool) {
		return push.Supplied{Instances: svc, Parts: []push.Part{{Instances: svc, Source: "consul:dc1"}}}, true
	}}
	key := entry.SyntheticKey(k)
	in := push.Inputs{Mesh: &push.Mesh{Config: config.DefaultMesh()}}
	in.Services, in.Endpoints = in.Services.With(k, svc.Service), in.Endpoints.With(k, svc.Endpoints)
	if o := s.objects(in).At(key); o == nil || o.Origin.Source != "consul" {
		t.Fatalf("ours is %v", o)
	}
	own := &config.Object{Key: key, Spec: &networking.ServiceEntry{}, Origin: config.Origin{Source: "file"}}
	written := in
	written.Objects = in.Objects.With(key, own)
	if o := s.objects(written).At(key); o != own {
		t.Errorf("the operator's is %v", o)
	}
	if o := s.objects(in).At(key); o == nil || o.Origin.Source != "consul" {
		t.Errorf("ours is %v again", o)
	}
}

// The setting needs somebody who may read.
func TestServicesSetting(t *testing.T) {
	t.Parallel()
	s := defaults()
	s.MCP.Services = true
	if err := s.check("test.yaml"); err == nil {
		t.Error("nobody is told, and that is fine")
	}
	s.MCP.Readers = []string{"rootNamespace"}
	if err := s.check("test.yaml"); err != nil {
		t.Error(err)
	}
	in, err := newInformants(s, nil, testlog.New(t))
	if err != nil {
		t.Fatal(err)
	}
	in.synthesize(s, nil, "serviceentry", testlog.New(t))
	if in.services == nil {
		t.Error("services are not told")
	}
	var nobody *informants
	nobody.synthesize(s, nil, "", nil)
	nobody.publish(push.Inputs{})
}
