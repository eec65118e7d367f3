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

// calling makes a workload say labels of its own.
func calling(labels map[string]string) func(*registry.Registration) {
	return func(r *registry.Registration) { r.Labels = labels }
}

// warningsOf are the problems of a batch that are about labels.
func warningsOf(b feed.Batch[registry.Instances]) string {
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

// Workloads that a service selects by labels which they chose themselves are warned of: whoever may join their group may answer
// for its hosts. What the group says of them is no choice of theirs, and other labels are nobody's business.
func TestChosenLabels(t *testing.T) {
	t.Parallel()
	rt := newRuntime(t)
	role := map[string]string{"role": "db", "version": "v1"}
	registerAll(t, rt, join("api", "10.0.0.1", "api", calling(role)), join("api", "10.0.0.2", "api", calling(role)))
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
		{world(apiGroup(), db), "selects 2 workloads of the WorkloadGroup shop/api by labels that they chose themselves as they joined (role=db)"},
		{world(labelled, db), ""},
	} {
		got := warningsOf(b.Derive(s.objects))
		if strings.Count(got, "\n") > 0 || !strings.Contains(got, s.want) || s.want == "" && got != "" {
			t.Errorf("step %d: got %q, want %q", i, got, s.want)
		}
	}
	alone := with(world(apiGroup(), db), config.WorkloadGroup, "api", labelled)
	if got := warningsOf(b.Derive(alone)); got != "" {
		t.Errorf("with the label in the group: %q", got)
	}
	alone = with(alone, config.WorkloadGroup, "api", apiGroup()) // and nothing else changes
	if got := warningsOf(b.Derive(alone)); !strings.Contains(got, "selects 2 workloads") {
		t.Errorf("after the group lost the label: %q", got)
	}
	if err := rt.Remove(t.Context(), registry.RegistrationKey{Namespace: "shop", Group: "api", Name: registry.RegistrationName("api", join("api", "10.0.0.2", "").Addresses[0], "")}, "1"); err != nil {
		t.Fatal(err)
	}
	last := world(apiGroup(), db)
	if got := warningsOf(b.Derive(last)); !strings.Contains(got, "selects 1 workload of") {
		t.Errorf("after one has gone: %q", got)
	}
	registerAll(t, rt, join("api", "10.0.0.1", "api", calling(role)))
	if got := b.Derive(last); len(got.Updates) > 0 {
		t.Errorf("one that connects anew costs %d services", len(got.Updates))
	}
}
