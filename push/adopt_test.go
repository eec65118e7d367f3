package push

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/registry"
)

// town merges what several sources say through an adopter, as the assembler does.
type town struct {
	adopts *adopter
	merged *feed.Merger[registry.Key, registry.Instances]
}

func newTown(sources ...string) *town {
	w := &town{newAdopter(nil, false), feed.NewMerger(sources, func(in registry.Instances) registry.Key { return in.Service.Key })}
	w.adopts.arrange(sources)
	return w
}

func (w *town) apply(all ...feed.Batch[registry.Instances]) {
	for _, b := range all {
		w.merged.Apply(b, time.Time{})
	}
}

func (w *town) declares(b feed.Batch[registry.Instances]) {
	b.Source = "entries"
	again := w.adopts.declare(b)
	w.apply(b)
	w.apply(again...)
}

func (w *town) says(b feed.Batch[registry.Instances]) {
	b, again := w.adopts.adopt(b)
	w.apply(b)
	w.apply(again...)
}

// has lists who supplies what of a host, by namespace.
func (w *town) has(host string, namespaces ...string) []string {
	var out []string
	for _, ns := range namespaces {
		for _, in := range w.merged.Items(registry.Key{Host: host, Namespace: ns}) {
			out = append(out, ns+" "+in.Service.Source)
		}
	}
	return out
}

func said(source, group, namespace string, hosts ...string) feed.Batch[registry.Instances] {
	u := feed.Update[registry.Instances]{Group: group}
	for _, h := range hosts {
		u.Items = append(u.Items, registry.Instances{Service: &registry.Service{Key: registry.Key{Host: h, Namespace: namespace}, Source: source, Created: time.Unix(int64(len(namespace)), 0)}})
	}
	return feed.Batch[registry.Instances]{Source: source, Updates: []feed.Update[registry.Instances]{u}}
}

// The service that a registry has joins the one that configuration declares, and leaves it when that is gone.
func TestAdopt(t *testing.T) {
	t.Parallel()
	w := newTown("entries", "consul:a", "consul:b")
	check := func(what string, want ...string) {
		t.Helper()
		if got := w.has("web", "default", "b", "shop", "longer"); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	w.says(said("consul:b", "web", "b", "web"))
	check("one registry", "b consul:b")
	w.says(said("consul:a", "web", "default", "web"))
	check("the first registry decides", "default consul:a", "default consul:b")
	w.declares(said("entries", "x", "longer", "web"))
	check("configuration decides", "longer entries", "longer consul:a", "longer consul:b")
	w.declares(said("entries", "y", "shop", "web"))
	check("the older of two", "shop entries", "shop consul:a", "shop consul:b", "longer entries")
	w.declares(feed.Batch[registry.Instances]{Updates: []feed.Update[registry.Instances]{{Group: "y"}}})
	check("the older is gone", "longer entries", "longer consul:a", "longer consul:b")
	w.declares(feed.Batch[registry.Instances]{Full: true})
	check("none declares it", "default consul:a", "default consul:b")
	w.says(feed.Batch[registry.Instances]{Source: "consul:a", Full: true})
	check("the first registry has it no more", "b consul:b")
	w.says(said("consul:a", "web", "default", "web"))
	w.merged.Arrange([]string{"entries", "consul:b"})
	w.apply(w.adopts.arrange([]string{"entries", "consul:b"})...)
	check("the first registry is gone", "b consul:b")
}

// exported is what is said, seen by these alone.
func exported(b feed.Batch[registry.Instances], to ...string) feed.Batch[registry.Instances] {
	for _, u := range b.Updates {
		for _, in := range u.Items {
			in.Service.ExportTo = to
		}
	}
	return b
}

// A declaration takes nothing from those who do not see it: for them the service of a registry is where it is by itself, or with the
// oldest declaration that all of them see.
func TestAdoptNotFromOthers(t *testing.T) {
	t.Parallel()
	gone := feed.Batch[registry.Instances]{Full: true}
	for name, tc := range map[string]struct {
		exportTo []string // of the mesh
		declares []feed.Batch[registry.Instances]
		own      []string // who sees the registry's
		want     []string
	}{
		"all see it":            {nil, []feed.Batch[registry.Instances]{said("entries", "x", "b", "web")}, nil, []string{"b entries", "b consul"}},
		"its namespace sees it": {nil, []feed.Batch[registry.Instances]{exported(said("entries", "x", "b", "web"), ".")}, nil, []string{"b entries", "b consul", "shop consul"}},
		"two namespaces see it": {nil, []feed.Batch[registry.Instances]{exported(said("entries", "x", "b", "web"), ".", "shop")}, nil, []string{"b entries", "b consul", "shop consul"}},
		"nobody sees it":        {nil, []feed.Batch[registry.Instances]{exported(said("entries", "x", "b", "web"), "~")}, nil, []string{"b entries", "b consul", "shop consul"}},
		"it is where the registry's is": {nil, []feed.Batch[registry.Instances]{exported(said("entries", "x", "shop", "web"), ".")}, nil,
			[]string{"shop entries", "shop consul"}},
		"all see a younger one": {nil, []feed.Batch[registry.Instances]{exported(said("entries", "x", "b", "web"), "."), said("entries", "y", "longer", "web")}, nil,
			[]string{"b entries", "b consul", "longer entries", "longer consul"}},
		"each its own": {nil, []feed.Batch[registry.Instances]{exported(said("entries", "x", "b", "web"), "."), exported(said("entries", "y", "longer", "web"), ".")}, nil,
			[]string{"b entries", "b consul", "longer entries", "longer consul", "shop consul"}},
		"all see an older one": {nil, []feed.Batch[registry.Instances]{said("entries", "x", "b", "web"), exported(said("entries", "y", "longer", "web"), ".")}, nil,
			[]string{"b entries", "b consul", "longer entries"}},
		"all who see the registry's see it": {nil, []feed.Batch[registry.Instances]{exported(said("entries", "x", "b", "web"), "shop", "c")}, []string{".", "c"},
			[]string{"b entries", "b consul"}},
		"by default its namespace sees it": {[]string{"."}, []feed.Batch[registry.Instances]{said("entries", "x", "b", "web")}, nil,
			[]string{"b entries", "b consul", "shop consul"}},
		"it is gone": {nil, []feed.Batch[registry.Instances]{exported(said("entries", "x", "b", "web"), "."), gone}, nil, []string{"shop consul"}},
	} {
		for _, first := range []bool{true, false} {
			w := newTown("entries", "consul")
			w.adopts.exportTo = tc.exportTo
			if first {
				w.says(exported(said("consul", "web", "shop", "web"), tc.own...))
			}
			for _, b := range tc.declares {
				w.declares(b)
			}
			if !first {
				w.says(exported(said("consul", "web", "shop", "web"), tc.own...))
			}
			if got := w.has("web", "b", "longer", "shop"); !slices.Equal(got, tc.want) {
				t.Errorf("%s, the registry first %v: %v, want %v", name, first, got, tc.want)
			}
		}
	}
}

// Whatever comes in whatever order, the result is that of what stands in the end.
func TestAdoptOrderFree(t *testing.T) {
	t.Parallel()
	sources := []string{"entries", "consul:a", "consul:b"}
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		live, last := newTown(sources...), map[string]feed.Batch[registry.Instances]{}
		for range 30 {
			source, group, namespace := sources[r.IntN(3)], fmt.Sprint(r.IntN(3)), []string{"n", "nn", "nnn"}[r.IntN(3)]
			var hosts []string
			for _, h := range []string{"x", "y"} {
				if r.IntN(2) == 0 {
					hosts = append(hosts, h)
				}
			}
			if source == "entries" { // configuration has one group for each service
				group, hosts = namespace+group, hosts[:min(1, len(hosts))]
				if len(hosts) > 0 {
					group = namespace + hosts[0]
				}
			}
			b := said(source, group, namespace, hosts...)
			if r.IntN(3) == 0 {
				b = exported(b, ".", []string{"n", "nnn"}[r.IntN(2)])
			}
			last[source+" "+group] = b
			live.take(b)
		}
		anew := newTown(sources...)
		for _, k := range slices.Sorted(func(yield func(string) bool) {
			for k := range last {
				if !yield(k) {
					return
				}
			}
		}) {
			anew.take(last[k])
		}
		for _, host := range []string{"x", "y"} {
			got, want := live.has(host, "n", "nn", "nnn"), anew.has(host, "n", "nn", "nnn")
			slices.Sort(got)
			slices.Sort(want)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("seed %d, host %s: %s", seed, host, diff)
			}
		}
	}
}

func (w *town) take(b feed.Batch[registry.Instances]) {
	if b.Source == "entries" {
		w.declares(b)
	} else {
		w.says(b)
	}
}
