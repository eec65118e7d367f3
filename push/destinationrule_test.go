package push_test

import (
	"strings"
	"testing"

	networking "istio.io/api/networking/v1alpha3"
	types "istio.io/api/type/v1beta1"

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

// A rule with a workloadSelector is for the proxies of its namespace that have the labels. There it
// takes precedence, and the rules for all proxies add what it does not set.
func TestSelectiveRule(t *testing.T) {
	t.Parallel()
	e := newEditor()
	e.service("b", "x.foo.com")
	put := func(namespace, name, host, app, subset string) {
		rule := &networking.DestinationRule{Host: host, Subsets: []*networking.Subset{{Name: subset}}}
		if app != "" {
			rule.WorkloadSelector = &types.WorkloadSelector{MatchLabels: map[string]string{"app": app}}
		}
		e.put(config.DestinationRule, namespace, name, rule)
	}
	put("a", "all", "x.foo.com", "", "all")
	put("a", "web", "x.foo.com", "web", "web")
	put("a", "other", "x.foo.com", "other", "other")
	put("b", "service", "x.foo.com", "", "service")
	put("b", "selective", "x.foo.com", "web", "selective")
	put("c", "wide", "*.foo.com", "", "wide")
	put("c", "web", "x.foo.com", "web", "web")
	c := push.Build(nil, e.in)
	for _, tc := range []struct{ namespace, label, want string }{
		{"a", "app=web", "web all"},
		{"a", "app=db", "all"},
		{"b", "app=web", "selective service"},
		{"b", "app=db", "service"},
		{"c", "app=web", "web"},
		{"c", "app=db", "wide"},
		{"d", "app=web", "service"},
	} {
		d, ok := c.Scope(c.Classify(node(tc.namespace, "10.0.0.1", tc.label))).Destinations.Get("x.foo.com")
		if !ok || d.Rule == nil {
			t.Fatalf("%s %s: found %v, rule %v", tc.namespace, tc.label, ok, d.Rule)
		}
		var got []string
		for _, s := range d.Rule.Spec.Subsets {
			got = append(got, s.Name)
		}
		if strings.Join(got, " ") != tc.want {
			t.Errorf("%s %s: subsets %v, want %s", tc.namespace, tc.label, got, tc.want)
		}
	}
}
