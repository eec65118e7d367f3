package adminapi

import (
	"strings"
	"testing"

	mesh "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry/entry"
)

// Workloads that registered themselves are shown among the WorkloadEntries, unless an operator
// wrote one of that name.
func TestRegisteredEntriesAreShown(t *testing.T) {
	t.Parallel()
	object := func(name, source string) *config.Object {
		return &config.Object{Key: config.Key{Kind: config.WorkloadEntry, Namespace: "shop", Name: name},
			Origin: config.Origin{Source: source},
			Spec:   &networking.WorkloadEntry{Address: "10.0.0.1"}}
	}
	var written push.Objects
	for _, o := range []*config.Object{object("b", "file"), object("both", "file")} {
		written = written.With(o.Key, o)
	}
	b := &API{Entries: func() entry.Entries {
		var out entry.Entries
		for _, o := range []*config.Object{object("a", entry.RegisteredSource),
			object("both", entry.RegisteredSource)} {
			out = out.With(o.Key, o)
		}
		return out
	}}
	b.Published = publish(push.Build(nil, push.Inputs{Mesh: &push.Mesh{Config: &mesh.MeshConfig{}, Domain: "cluster.local"},
		Objects: written}))
	all, err := b.Objects(t.Context(), admin.ObjectQuery{Kind: "we"})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, o := range all {
		got = append(got, o.Metadata.Name+" "+o.Origin.Source)
	}
	if want := "a workloads, b file, both file"; strings.Join(got, ", ") != want {
		t.Errorf("got %v, want %s", got, want)
	}
	if one, err := b.Objects(t.Context(), admin.ObjectQuery{Kind: "workloadentry", Namespace: "shop", Name: "a"}); err != nil || len(one) != 1 {
		t.Errorf("by name: %v, %v", one, err)
	}
	if none, err := b.Objects(t.Context(), admin.ObjectQuery{Kind: "wg"}); err != nil || len(none) != 0 {
		t.Errorf("groups: %v, %v", none, err)
	}
}
