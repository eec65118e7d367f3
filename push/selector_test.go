package push

import (
	"math/rand/v2"
	"testing"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
)

// What the index finds is what a look at every selector would, and the same whoever came first and whatever else
// there is that does not meet it.
func TestSelectorIndex(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 9))
	random := func() (map[string]string, selector) {
		labels := map[string]string{}
		for _, name := range []string{"a", "b", "c"} {
			if v := r.IntN(4); v > 0 {
				labels[name] = string(rune('0' + v))
			}
		}
		return labels, selectorOf(&config.Object{Spec: &networking.Gateway{Selector: labels}})
	}
	for range 1000 {
		own, s := random()
		type entry struct {
			sel   selector
			text  string
			meets bool
		}
		var all []entry
		wider, meeting := map[string]bool{}, map[string]bool{}
		for range r.IntN(6) {
			labels, sel := random()
			e := entry{sel, "is " + sel.String(), selectorsMeet(labels, own)}
			all = append(all, e)
			if e.meets {
				meeting[e.text] = true
			}
			if selectsAll(labels, own) {
				wider[e.text] = true
			}
		}
		var x, other *selectorIndex[string]
		for _, e := range all {
			x = x.with(e.sel, e.text)
		}
		for _, i := range r.Perm(len(all)) {
			if all[i].meets {
				other = other.with(all[i].sel, all[i].text)
			}
		}
		if got := x.wider(s); wider[got] != (len(wider) > 0) || got != other.wider(s) {
			t.Fatalf("wider than %v: got %q and %q, want one of %v", own, got, other.wider(s), wider)
		}
		if got := x.meeting(s); meeting[got] != (len(meeting) > 0) || got != other.meeting(s) {
			t.Fatalf("meeting %v: got %q and %q, want one of %v", own, got, other.meeting(s), meeting)
		}
	}
}

// selectorsMeet says whether some workload may have the labels of both.
func selectorsMeet(a, b map[string]string) bool {
	for k, v := range a {
		if other, ok := b[k]; ok && other != v {
			return false
		}
	}
	return true
}
