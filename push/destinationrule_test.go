package push_test

import (
	"testing"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/push"
)

// A wildcard rule with a wildcard service applies in its namespace to the services of others that
// it covers. It applies in no other namespace.
func TestWildcardRuleInItsNamespace(t *testing.T) {
	t.Parallel()
	e := newEditor()
	e.service("a", "*.foo.com")
	e.service("b", "x.foo.com")
	e.put(config.DestinationRule, "a", "rule", &networking.DestinationRule{Host: "*.foo.com"})
	c := push.Build(nil, e.in)
	for namespace, want := range map[string]bool{"a": true, "b": false, "c": false} {
		d, ok := c.Scope(c.Classify(node(namespace, "10.0.0.1"))).Destinations.Get("x.foo.com")
		if !ok || (d.Rule != nil) != want {
			t.Errorf("from %s: x.foo.com found %v, with a rule %v, want %v", namespace, ok, d.Rule != nil, want)
		}
	}
}
