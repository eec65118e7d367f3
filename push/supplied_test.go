package push_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
)

// A service tells of whom it is made, and which of its endpoints are whose.
func TestSupplied(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		first, second := newScripted[registry.Instances]("first"), newScripted[registry.Instances]("second")
		a := push.NewAssembler(push.AssemblerConfig{
			Sources: push.Sources{Instances: []feed.Source[registry.Instances]{first, second}}, Mesh: testMesh(), Publish: func(*push.Context, push.Changes) {},
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- a.Run(ctx) }()
		defer func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}()
		second.say <- services(true, instances("web", "10.0.0.2", "10.0.0.3"), instances("db", "10.0.0.9"))
		first.say <- services(true, instances("web", "10.0.0.1"))
		synctest.Wait()
		got, ok := a.Supplied(registry.Key{Host: "web", Namespace: "a"})
		if !ok || len(got.Parts) != 2 || got.Parts[0].Source != "first" || got.Parts[1].Source != "second" {
			t.Fatalf("got %+v", got)
		}
		if got.Parts[0].Used != 1 || got.Parts[1].Used != 2 || !slices.Equal(addressesOf(got.Endpoints), []string{"10.0.0.1", "10.0.0.2", "10.0.0.3"}) {
			t.Errorf("%d and %d of %v", got.Parts[0].Used, got.Parts[1].Used, addressesOf(got.Endpoints))
		}
		if got, ok := a.Supplied(registry.Key{Host: "db", Namespace: "a"}); !ok || len(got.Parts) != 1 || got.Parts[0].Source != "second" {
			t.Errorf("of one source: %+v", got)
		}
		if got, ok := a.Supplied(registry.Key{Host: "none", Namespace: "a"}); ok {
			t.Errorf("of none: %+v", got)
		}
	})
}

// An endpoint has to prove to be its service account; without one it has no identity.
func TestIdentityOf(t *testing.T) {
	t.Parallel()
	c := push.Build(nil, push.Inputs{Mesh: &push.Mesh{Config: config.DefaultMesh()}})
	for _, tc := range []struct {
		ep   registry.Endpoint
		want string
	}{
		{registry.Endpoint{Namespace: "shop", ServiceAccount: "web"}, "spiffe://cluster.local/ns/shop/sa/web"},
		{registry.Endpoint{Namespace: "shop", TLSMode: "istio"}, ""},
		{registry.Endpoint{Namespace: "shop", TLSMode: "disabled"}, ""},
		{registry.Endpoint{Namespace: "shop", ServiceAccount: "a/b"}, ""},
	} {
		if got := c.IdentityOf(&tc.ep).String(); got != tc.want {
			t.Errorf("%+v: %q, want %q", tc.ep, got, tc.want)
		}
	}
}

func addressesOf(l *registry.EndpointList) []string {
	var out []string
	for _, ep := range l.All() {
		out = append(out, ep.Address)
	}
	return out
}
