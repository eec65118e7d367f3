package push_test

import (
	"fmt"
	"testing"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
)

// Who endpoints may be is known to clients with an identity of their own, and changes with nothing
// else.
func TestIdentities(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		endpoints []registry.Endpoint
		want      string
	}{
		"none":             {nil, "[] false false"},
		"named":            {[]registry.Endpoint{{Namespace: "a", ServiceAccount: "web"}}, "[{a web}] false false"},
		"sorted, once":     {[]registry.Endpoint{{Namespace: "b", ServiceAccount: "w", TLSMode: "istio"}, {Namespace: "a", ServiceAccount: "z"}, {Namespace: "b", ServiceAccount: "w"}}, "[{a z} {b w}] true false"},
		"unnamed, mutual":  {[]registry.Endpoint{{Namespace: "a", TLSMode: "istio"}}, "[] true true"},
		"unnamed":          {[]registry.Endpoint{{Namespace: "a"}}, "[] false true"},
		"plain among them": {[]registry.Endpoint{{Namespace: "a"}, {Namespace: "a", ServiceAccount: "web", TLSMode: "istio"}}, "[{a web}] true false"},
		"mixed, mutual":    {[]registry.Endpoint{{Namespace: "a", TLSMode: "istio"}, {Namespace: "a", ServiceAccount: "web", TLSMode: "istio"}}, "[{a web}] true false"},
		"other modes":      {[]registry.Endpoint{{Namespace: "a", ServiceAccount: "web", TLSMode: "other"}}, "[{a web}] false false"},
	} {
		e := newEditor()
		e.service("a", "web")
		k := registry.Key{Host: "web", Namespace: "a"}
		e.in.Endpoints = e.in.Endpoints.With(k, &registry.EndpointList{Items: tc.endpoints})
		c := push.Build(nil, e.in)
		n := node("c", "10.9.9.9")
		n.Identity = true
		before := c.Scope(c.Classify(n)).Destinations
		d, _ := before.Get("web")
		if got := fmt.Sprint(d.Identities.Names.Items(), d.Identities.MutualTLS, d.Identities.AnyName); got != tc.want {
			t.Errorf("%s: got %s, want %s", name, got, tc.want)
		}
		// health, weight and one more of the same
		items := append(tc.endpoints[:len(tc.endpoints):len(tc.endpoints)], tc.endpoints...)
		for i := range items {
			items[i].Health, items[i].Weight, items[i].Address = registry.Unhealthy, 9, fmt.Sprint("10.0.0.", i)
		}
		e.in.Endpoints = e.in.Endpoints.With(k, &registry.EndpointList{Items: items})
		after := push.Build(c, e.in)
		if after.Scope(after.Classify(n)).Destinations != before {
			t.Errorf("%s: endpoints changed, not who they are, and the destinations are another pointer", name)
		}
		n.Identity = false
		if d, _ := c.Scope(c.Classify(n)).Destinations.Get("web"); d.Identities != (push.Identities{}) {
			t.Errorf("%s: a client without identity sees %v", name, d.Identities)
		}
	}
}

// An endpoint has the identity of its service account; without one it has none.
func TestIdentityOf(t *testing.T) {
	t.Parallel()
	c := push.Build(nil, push.Inputs{Mesh: &push.Mesh{Config: config.DefaultMesh()}})
	for _, tc := range []struct {
		ep   registry.Endpoint
		want string
	}{
		{registry.Endpoint{Namespace: "shop", ServiceAccount: "web"}, "spiffe://cluster.local/ns/shop/sa/web"},
		{registry.Endpoint{Namespace: "shop", TLSMode: "istio"}, ""},
		{registry.Endpoint{Namespace: "shop", ServiceAccount: "a/b"}, ""},
	} {
		if got := c.IdentityOf(&tc.ep).String(); got != tc.want {
			t.Errorf("%+v: %q, want %q", tc.ep, got, tc.want)
		}
	}
}
