package entry_test

import (
	"strings"
	"testing"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/registry/entry"
)

// selectorProblems are the problems of a batch with workloadSelectors.
func selectorProblems(b feed.Batch[registry.Instances]) string {
	var out []string
	for _, u := range b.Updates {
		for _, p := range u.Problems {
			if p.Field == "spec.workloadSelector" {
				out = append(out, p.Object+": "+p.Text)
			}
		}
	}
	return strings.Join(out, "\n")
}

// A problem says when a service selects workloads by labels that they set themselves, and not when
// their group sets them.
func TestOwnLabels(t *testing.T) {
	t.Parallel()
	rt := newRuntime(t)
	role := map[string]string{"role": "db", "version": "v1"}
	registerAll(t, rt, join("api", "10.0.0.1", "api", ownLabels(role)), join("api", "10.0.0.2", "api", ownLabels(role)))
	b := entry.New(rt)
	world := func(group *networking.WorkloadGroup, selector map[string]string) objects {
		s := serviceEntry(networking.ServiceEntry_STATIC, "db.test", "db2.test")
		s.Addresses = []string{"240.0.0.9"}
		s.WorkloadSelector = &networking.WorkloadSelector{Labels: selector}
		return with(shop(group), config.ServiceEntry, "db", s)
	}
	labelled := apiGroup()
	labelled.Metadata = &networking.WorkloadGroup_ObjectMeta{Labels: map[string]string{"role": "db"}}
	db := map[string]string{"app": "api", "role": "db"}
	for i, s := range []struct {
		objects objects
		want    string
	}{
		{world(apiGroup(), map[string]string{"app": "api"}), ""},
		{world(apiGroup(), db), "selects workloads of WorkloadGroup shop/api by labels that they set themselves (role=db)"},
		{world(labelled, db), ""},
	} {
		got := selectorProblems(b.Derive(s.objects))
		if strings.Count(got, "\n") > 0 || !strings.Contains(got, s.want) || s.want == "" && got != "" {
			t.Errorf("step %d: got %q, want %q", i, got, s.want)
		}
	}
	changed := with(world(apiGroup(), db), config.WorkloadGroup, "api", labelled)
	if got := selectorProblems(b.Derive(changed)); got != "" {
		t.Errorf("with the label in the group: %q", got)
	}
	changed = with(changed, config.WorkloadGroup, "api", apiGroup()) // and nothing else changes
	if got := selectorProblems(b.Derive(changed)); !strings.Contains(got, "selects workloads") {
		t.Errorf("after the group lost the label: %q", got)
	}
	last := world(apiGroup(), db)
	b.Derive(last)
	registerAll(t, rt, join("api", "10.0.0.1", "api", ownLabels(role)))
	if got := b.Derive(last); len(got.Updates) > 0 {
		t.Errorf("a reconnect derives %d services", len(got.Updates))
	}
}
