package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"
	mcpv1 "istio.io/api/mcp/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/testlog"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/registry/entry"
)

// audience is a market that serves what it has to other control planes, and reads from one that
// comes before all its own sources.
type audience struct {
	*market
	peer  *saying[*config.Object]
	out   *mcpPublisher
	built int // contexts
}

func newAudience(t *testing.T, settle func(*settings)) *audience {
	t.Helper()
	s := defaults()
	s.MCP.Readers, s.MCP.Services = []string{"rootNamespace"}, true
	settle(&s)
	if err := s.check("test.yaml"); err != nil {
		t.Fatal(err)
	}
	a := &audience{peer: &saying[*config.Object]{"mcp:peer", make(chan feed.Batch[*config.Object])}}
	a.out = newMCPPublisher(s, testlog.New(t))
	a.market = newMarket(t, func(c *push.AssemblerConfig) {
		c.Sources.Objects = slices.Insert(c.Sources.Objects, 0,
			push.Source[*config.Object]{Source: a.peer, Optional: true})
		c.Join.Shadow, c.Export = s.Merge.Endpoints == "shadow", a.out.exportConfig()
		publish := c.Publish
		c.Publish = func(c *push.Context, changes push.Changes) { a.built++; publish(c, changes) }
	})
	return a
}

// tells is what other control planes are told after all that has been said: each ServiceEntry with
// its endpoints.
func (a *audience) tells(t *testing.T) (out []string) {
	t.Helper()
	time.Sleep(5 * time.Second) // longer than an object stays that was removed from a file
	synctest.Wait()
	set, ok := a.out.catalog.Set("networking.istio.io/v1/ServiceEntry")
	if !ok {
		t.Fatal("there are no ServiceEntries")
	}
	for r := range set.All() {
		var res mcpv1.Resource
		se := &networking.ServiceEntry{}
		if err := errors.Join(proto.Unmarshal(r.Body(), &res), res.GetBody().UnmarshalTo(se)); err != nil {
			t.Fatal(err)
		}
		text := res.Metadata.Name
		for _, ep := range se.Endpoints {
			text += " " + ep.Address
		}
		out = append(out, text)
	}
	return out
}

// hears has the neighbour say what a text says.
func (a *audience) hears(t *testing.T, text string) {
	t.Helper()
	r := config.Parse("a.yaml", []byte(text))
	if len(r.Problems) > 0 {
		t.Fatal(r.Problems)
	}
	for _, o := range r.Objects {
		o.Origin = config.Origin{Source: a.peer.name}
	}
	a.peer.say <- feed.Batch[*config.Object]{Full: true,
		Updates: []feed.Update[*config.Object]{{Group: "all", Items: r.Objects}}}
}

// What registries know is told as ServiceEntries, unless an object of our own declares the host; an
// object of another control plane changes nothing of that, though it counts here. It follows what
// changes.
func TestSynthesis(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newAudience(t, func(*settings) {})
		check := func(what string, want ...string) {
			t.Helper()
			if got := a.tells(t); !slices.Equal(got, want) {
				t.Errorf("%s: %q, want %q", what, got, want)
			}
		}
		db, web := "shop/registry-db.service.consul", "shop/registry-web.service.consul"
		a.reads(t, "")
		a.knows(true, "web.service.consul", registry.Endpoint{Address: "10.0.0.1", Namespace: "shop"},
			registry.Endpoint{Address: "10.0.0.2", Namespace: "shop", Health: registry.Unhealthy})
		a.knows(false, "db.service.consul", registry.Endpoint{Address: "10.0.0.9"})
		check("services", db+" 10.0.0.9", web+" 10.0.0.1")
		before := a.out.services.all
		check("nothing new", db+" 10.0.0.9", web+" 10.0.0.1")
		if a.out.services.all != before {
			t.Error("nothing has changed, and the objects are others")
		}
		a.knows(false, "db.service.consul", registry.Endpoint{Address: "10.0.0.8"})
		check("a change", db+" 10.0.0.8", web+" 10.0.0.1")
		a.hears(t, marketFile)
		check("declared by an object of another control plane", db+" 10.0.0.8", web+" 10.0.0.1")
		a.hears(t, strings.ReplaceAll(marketFile, "shop", "elsewhere"))
		check("declared by one in another namespace", db+" 10.0.0.8", web+" 10.0.0.1")
		a.reads(t, marketFile)
		check("declared by an object of our own", db+" 10.0.0.8", "shop/web")
		a.reads(t, strings.ReplaceAll(marketFile, "shop", "elsewhere"))
		check("declared by one of our own in another namespace", "elsewhere/web", db+" 10.0.0.8")
		a.reads(t, "")
		check("declared by none of our own any more", db+" 10.0.0.8", web+" 10.0.0.1")
		a.knows(false, "web.service.consul", registry.Endpoint{Address: "unix:///x y", Namespace: "shop"},
			registry.Endpoint{Address: "no name", Namespace: "shop"})
		check("no valid ServiceEntry", db+" 10.0.0.8")
		a.dc1.say <- feed.Batch[registry.Instances]{Full: true}
		time.Sleep(10 * time.Minute) // as long as a source that lost everything retains services
		check("nothing")
	})
}

// Readers are told what the registry says now, also where an object of another control plane counts
// here, so that nothing that counts changes.
func TestSynthesisOfWhatIsHidden(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newAudience(t, func(s *settings) { s.Merge.Endpoints = "shadow" })
		a.reads(t, "")
		a.hears(t, strings.ReplaceAll(marketFile, "workloadSelector: {labels: {app: web}}",
			"endpoints: [{address: 10.0.0.1}]"))
		a.knows(true, "web.service.consul", registry.Endpoint{Address: "10.0.0.7", Namespace: "shop"})
		if got := a.tells(t); !slices.Equal(got, []string{"shop/registry-web.service.consul 10.0.0.7"}) {
			t.Fatalf("told is %q", got)
		}
		before := a.built
		a.knows(false, "web.service.consul", registry.Endpoint{Address: "10.0.0.8", Namespace: "shop"})
		if got := a.tells(t); !slices.Equal(got, []string{"shop/registry-web.service.consul 10.0.0.8"}) ||
			a.built != before {
			t.Errorf("told is %q after %d more contexts, want the new address after none", got, a.built-before)
		}
		a.dc1.say <- feed.Batch[registry.Instances]{Full: true}
		time.Sleep(10 * time.Minute) // as long as a source that lost everything retains services
		if got := a.tells(t); len(got) > 0 || a.built != before {
			t.Errorf("told is %q after %d more contexts, and no registry has it", got, a.built-before)
		}
	})
}

// What other control planes say is told by who relays it, and then as what counts here.
func TestRelayed(t *testing.T) {
	t.Parallel()
	for relay, want := range map[bool]string{false: "[shop/registry-web.service.consul 10.0.0.7]",
		true: "[shop/web 10.0.0.1]"} {
		synctest.Test(t, func(t *testing.T) {
			a := newAudience(t, func(s *settings) { s.MCP.Relay = relay })
			a.reads(t, "")
			a.knows(true, "web.service.consul", registry.Endpoint{Address: "10.0.0.7", Namespace: "shop"})
			a.hears(t, strings.ReplaceAll(marketFile, "workloadSelector: {labels: {app: web}}",
				"endpoints: [{address: 10.0.0.1}]"))
			if got := fmt.Sprint(a.tells(t)); got != want {
				t.Errorf("relay %v: told is %s, want %s", relay, got, want)
			}
		})
	}
}

// An object that an operator wrote under the name of ours stays, and ours comes when it goes.
func TestSynthesisIsNoOperators(t *testing.T) {
	t.Parallel()
	k := registry.Key{Host: "web", Namespace: "shop"}
	svc := registry.Instances{Service: &registry.Service{Key: k, Ports: []registry.Port{{Number: 80}},
		Source: "consul"}, Endpoints: &registry.EndpointList{}}
	s := &synthesis{log: testlog.New(t)}
	key := entry.SyntheticKey(k)
	in := push.Exported{}
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
	if out := newMCPPublisher(s, testlog.New(t)); !out.exportConfig().Services {
		t.Error("services are not exported")
	}
	if nobody := (*mcpPublisher)(nil); nobody.exportConfig() != nil {
		t.Error("something is exported, and nobody may read")
	}
}
