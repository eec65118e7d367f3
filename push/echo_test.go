package push

import (
	"strings"
	"testing"

	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/registry"
)

// What another control plane tells of a host is used while it has nothing in common with what registries of ours say, and not any
// more once it had, whoever is heard of first; until one of the two is not there any more.
func TestEcho(t *testing.T) {
	t.Parallel()
	at := func(source string, addresses ...string) feed.Batch[registry.Instances] {
		b := said(source, "web", "n", "web")
		in := &b.Updates[0].Items[0]
		in.Service.Relayed, in.Endpoints = source == "relayed", &registry.EndpointList{}
		for _, a := range addresses {
			in.Endpoints.Items = append(in.Endpoints.Items, registry.Endpoint{Address: a})
		}
		return b
	}
	gone := func(source string) feed.Batch[registry.Instances] {
		return feed.Batch[registry.Instances]{Source: source, Full: true}
	}
	arrange := func(names ...string) func(w *town) {
		return func(w *town) {
			w.merged.Arrange(names)
			w.apply(w.adopts.arrange(names)...)
		}
	}
	type steps []any
	for name, c := range map[string]struct {
		steps steps
		want  string
	}{
		"another registry":              {steps{at("consul", "1"), at("relayed", "2")}, "1 2"},
		"the same":                      {steps{at("consul", "1", "3"), at("relayed", "1", "2")}, "1 3"},
		"the same, heard of before":     {steps{at("relayed", "1", "2"), at("consul", "1", "3")}, "1 3"},
		"it moved on":                   {steps{at("consul", "1"), at("relayed", "1"), at("consul", "2")}, "2"},
		"it is gone there":              {steps{at("consul", "1"), at("relayed", "1"), gone("consul")}, ""},
		"and heard of once more":        {steps{at("consul", "1"), at("relayed", "1"), gone("consul"), at("relayed", "1")}, ""},
		"told anew":                     {steps{at("consul", "1"), at("relayed", "1"), gone("consul"), gone("relayed"), at("relayed", "1")}, "1"},
		"the source is out of the list": {steps{at("consul", "1"), at("relayed", "1", "2"), arrange("other", "relayed")}, "1 2"},
		"the list is in another order":  {steps{at("consul", "1"), at("relayed", "1", "2"), arrange("other", "consul", "relayed")}, "1"},
		"another source has it":         {steps{at("consul", "1"), at("other", "2"), at("relayed", "1", "2"), arrange("other", "relayed")}, "2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newTown("consul", "other", "relayed")
			for _, s := range c.steps {
				switch s := s.(type) {
				case feed.Batch[registry.Instances]:
					w.says(s)
				case func(*town):
					s(w)
				}
			}
			var got []string
			for _, in := range w.merged.Items(registry.Key{Host: "web", Namespace: "n"}) {
				for _, e := range in.Endpoints.All() {
					got = append(got, e.Address)
				}
			}
			if got := strings.Join(got, " "); got != c.want {
				t.Errorf("endpoints are %q, want %q", got, c.want)
			}
		})
	}
}
