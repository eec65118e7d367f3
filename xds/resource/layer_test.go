package resource_test

import (
	"testing"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// With replaces what differs, adds nothing, and leaves the layer that it was called on alone.
func TestLayerWith(t *testing.T) {
	t.Parallel()
	item := func(name, body string) *resource.Resource {
		return resource.New("t", name, nil, func() []byte { return []byte(body) })
	}
	a, b, other := item("a", "1"), item("b", "1"), item("b", "2")
	l := resource.NewLayer([]*resource.Resource{b, a})
	for name, c := range map[string]struct {
		items []*resource.Resource
		same  bool
		b     *resource.Resource
	}{
		"nothing":  {nil, true, b},
		"the same": {[]*resource.Resource{b}, true, b},
		"unknown":  {[]*resource.Resource{item("c", "1")}, true, b},
		"other":    {[]*resource.Resource{other, a, item("c", "1")}, false, other},
	} {
		got := l.With(c.items)
		if (got == l) != c.same || got.Get("b") != c.b || got.Get("a") != a || len(got.Items()) != 2 {
			t.Errorf("%s: same layer %v, want %v; %d items", name, got == l, c.same, len(got.Items()))
		}
		if l.Get("b") != b {
			t.Errorf("%s: the layer itself changed", name)
		}
	}
}

// The two patches of a TrafficExtension count as one: one of them changes something.
func TestEffects(t *testing.T) {
	t.Parallel()
	o := &config.Object{Key: config.Key{Kind: config.TrafficExtension, Name: "lua"}}
	client, server := &resource.Patch{Object: o, Field: "spec"}, &resource.Patch{Object: o, Field: "spec"}
	for want, effects := range []map[*resource.Patch]bool{{client: false, server: true}, {client: false, server: false}} {
		if got := resource.Problems(resource.Set{Shared: &resource.Layer{Effects: effects}}); len(got) != want {
			t.Errorf("%v: got %v, want %d", effects, got, want)
		}
	}
}
