package push_test

import (
	"slices"
	"testing"
	"time"

	telemetry "istio.io/api/telemetry/v1alpha1"
	typev1beta1 "istio.io/api/type/v1beta1"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/push"
)

// At each level the oldest object applies: of the mesh, of the namespace, of the labels. A selector
// selects in the object's own namespace only.
func TestTelemetryLevels(t *testing.T) {
	t.Parallel()
	e := newEditor()
	root := e.in.Mesh.Config.GetRootNamespace()
	web := &typev1beta1.WorkloadSelector{MatchLabels: map[string]string{"app": "web"}}
	for i, o := range []struct {
		namespace, name string
		selector        *typev1beta1.WorkloadSelector
	}{
		{root, "mesh", nil}, {root, "later", nil}, {root, "web", web},
		{"a", "web", web}, {"a", "all", nil}, {"a", "later", nil}, {"a", "web-later", web}, {"b", "web", web},
	} {
		e.put(config.Telemetry, o.namespace, o.name, &telemetry.Telemetry{Selector: o.selector})
		key := config.Key{Kind: config.Telemetry, Namespace: o.namespace, Name: o.name}
		dated := *e.in.Objects.At(key)
		dated.Created = time.Unix(int64(i), 0)
		e.in.Objects = e.in.Objects.With(key, &dated)
	}
	c := push.Build(nil, e.in)
	gateway := node("b", "10.0.0.9", "app=web")
	gateway.Type = push.Router
	for name, tc := range map[string]struct {
		node push.Node
		want []string
	}{
		"labels":         {node("a", "10.0.0.1", "app=web"), []string{root + "/mesh", "a/all", "a/web"}},
		"no labels":      {node("a", "10.0.0.1"), []string{root + "/mesh", "a/all"}},
		"other":          {node("c", "10.0.0.1", "app=web"), []string{root + "/mesh"}},
		"root namespace": {node(root, "10.0.0.1", "app=web"), []string{root + "/mesh", root + "/web"}},
		"gateway":        {gateway, []string{root + "/mesh", "b/web"}},
	} {
		var got []string
		for _, o := range c.Classify(tc.node).Telemetry.Items() {
			got = append(got, o.Namespace+"/"+o.Name)
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: got %v, want %v", name, got, tc.want)
		}
	}
}

// A changed Telemetry changes the facets of the proxies that it selects, and of no others.
func TestTelemetryChangesWhatItSelects(t *testing.T) {
	t.Parallel()
	e := newEditor()
	e.put(config.Telemetry, "a", "all", &telemetry.Telemetry{})
	e.put(config.Telemetry, "b", "all", &telemetry.Telemetry{})
	first := push.Build(nil, e.in)
	e.put(config.Telemetry, "b", "all", &telemetry.Telemetry{AccessLogging: []*telemetry.AccessLogging{{}}})
	second := push.Build(first, e.in)
	for namespace, changes := range map[string]bool{"a": false, "b": true} {
		n := node(namespace, "10.0.0.1")
		before, after := first.Scope(first.Classify(n)), second.Scope(second.Classify(n))
		if (before != after) != changes {
			t.Errorf("the scope in %s changes: %v, want %v", namespace, before != after, changes)
		}
	}
}
