package push_test

import (
	"slices"
	"testing"

	security "istio.io/api/security/v1beta1"
	typev1beta1 "istio.io/api/type/v1beta1"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/push"
)

// A policy holds for whom it selects: in its namespace, from the root namespace everywhere.
func TestPoliciesSelect(t *testing.T) {
	t.Parallel()
	e := newEditor()
	root := e.in.Mesh.Config.GetRootNamespace()
	web := &typev1beta1.WorkloadSelector{MatchLabels: map[string]string{"app": "web"}}
	e.put(config.AuthorizationPolicy, "a", "all", &security.AuthorizationPolicy{})
	e.put(config.AuthorizationPolicy, "a", "web", &security.AuthorizationPolicy{Selector: web})
	e.put(config.AuthorizationPolicy, "b", "all", &security.AuthorizationPolicy{})
	e.put(config.AuthorizationPolicy, root, "all", &security.AuthorizationPolicy{})
	e.put(config.AuthorizationPolicy, root, "web", &security.AuthorizationPolicy{Selector: web})
	e.put(config.PeerAuthentication, "a", "all", &security.PeerAuthentication{})
	c := push.Build(nil, e.in)
	gateway := node("b", "10.0.0.9", "app=web")
	gateway.Type = push.Router
	for name, tc := range map[string]struct {
		node push.Node
		want []string
	}{
		"labels":         {node("a", "10.0.0.1", "app=web"), []string{"a/all", "a/web", root + "/all", root + "/web"}},
		"no labels":      {node("a", "10.0.0.1"), []string{"a/all", root + "/all"}},
		"other":          {node("c", "10.0.0.1"), []string{root + "/all"}},
		"root namespace": {node(root, "10.0.0.1", "app=web"), []string{root + "/all", root + "/web"}},
		"gateway":        {gateway, []string{"b/all", root + "/all", root + "/web"}},
	} {
		var got []string
		for _, o := range c.Classify(tc.node).AuthorizationPolicy.Items() {
			got = append(got, o.Namespace+"/"+o.Name)
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: got %v, want %v", name, got, tc.want)
		}
	}
}

// A changed policy changes the facets of a proxy. A policy that does not select the proxy does not.
func TestPoliciesArePointers(t *testing.T) {
	t.Parallel()
	e := newEditor()
	e.put(config.AuthorizationPolicy, "a", "all", &security.AuthorizationPolicy{})
	e.put(config.AuthorizationPolicy, "b", "all", &security.AuthorizationPolicy{})
	e.put(config.PeerAuthentication, "b", "all", &security.PeerAuthentication{})
	n := node("a", "10.0.0.1")
	first := push.Build(nil, e.in)
	before, peers := first.Classify(n), first.Scope(first.Classify(n)).PeerAuthentications
	e.put(config.AuthorizationPolicy, "b", "all",
		&security.AuthorizationPolicy{Action: security.AuthorizationPolicy_DENY})
	second := push.Build(first, e.in)
	if second.Classify(n) != before {
		t.Error("a policy of another namespace changes the facets")
	}
	if second.Scope(before).PeerAuthentications != peers {
		t.Error("the index for clients is another although no PeerAuthentication changed")
	}
	e.put(config.AuthorizationPolicy, "a", "all",
		&security.AuthorizationPolicy{Action: security.AuthorizationPolicy_DENY})
	if push.Build(second, e.in).Classify(n) == before {
		t.Error("a changed policy does not change the facets")
	}
}
