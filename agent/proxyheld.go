package agent

import (
	"maps"
	"time"

	"github.com/ashore-mesh/ashore/xds/ads"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// heldType is what is held of one type. Bytes only: nothing is decoded but what refsOf says.
type heldType struct {
	kind *ads.Kind // set once
	rank int       // set once

	all      bool                // everything is wanted of the control plane
	complete bool                // everything that there is of it is held
	names    map[string]struct{} // wanted by name
	gone     map[string]struct{} // wanted by name, and the control plane said that they do not exist
	entries  map[string]*heldEntry
	retained map[string]struct{} // of names: an Envoy that is gone wanted them
	open     map[string]struct{} // names that the control plane offered and no Envoy has judged
	denied   map[string]struct{} // names of which Envoy refuses what is offered

	layer *resource.Layer     // of what Envoy is to have, but for stale; nil: to be made
	stale map[string]struct{} // names that are not in layer as they should be
}

// heldEntry is one resource.
type heldEntry struct {
	// offered is what the control plane said last, and version what it calls that.
	offered *resource.Resource
	version string
	// accepted is what an Envoy took last, nil for nothing, and acceptedVersion what the control plane called that.
	accepted        *resource.Resource
	acceptedVersion string
	// words are Envoy's own, when it refused offered; empty: it did not. refusedAt is when.
	words     string
	refusedAt time.Time
	told      verdict // what the control plane knows of Envoy and offered
}

// verdict is what Envoy made of an offer.
type verdict uint8

const (
	undecided verdict = iota
	taken
	denied
)

func newHeldType(typeURL string) *heldType {
	kind, rank := proxyKind(typeURL)
	return &heldType{kind: kind, rank: rank, names: map[string]struct{}{}, gone: map[string]struct{}{}, entries: map[string]*heldEntry{}, open: map[string]struct{}{}, denied: map[string]struct{}{}, stale: map[string]struct{}{}}
}

// wanted is what Envoy is to have of an entry: what is offered, or, when it refused that, what it took before. Nil for nothing.
func (e *heldEntry) wanted() *resource.Resource {
	if e.words != "" {
		return e.accepted
	}
	return e.offered
}

// target is what Envoy is to have.
func (t *heldType) target() resource.Set {
	if t.layer == nil || len(t.stale) > 0 && !t.replace() {
		items := make([]*resource.Resource, 0, len(t.entries))
		for _, e := range t.entries {
			if r := e.wanted(); r != nil {
				items = append(items, r)
			}
		}
		t.layer = resource.NewLayer(items)
	}
	clear(t.stale)
	return resource.Set{Shared: t.layer}
}

// replace makes the layer what it should be when nothing came or went: that costs no sorting.
func (t *heldType) replace() bool {
	items := make([]*resource.Resource, 0, len(t.stale))
	for name := range t.stale {
		e := t.entries[name]
		if e == nil || e.wanted() == nil || t.layer.Get(name) == nil {
			return false
		}
		items = append(items, e.wanted())
	}
	t.layer = t.layer.With(items)
	return true
}

// answered says whether it is known what there is of a name: only then may Envoy hear of it.
func (t *heldType) answered(name string) bool {
	if t.entries[name] != nil {
		return true
	}
	_, ok := t.gone[name]
	return ok
}

// offer takes in what the control plane says of one resource. again says that it is what it said before.
func (t *heldType) offer(it *ads.Item) (again bool) {
	delete(t.gone, it.Name)
	r := resource.New(it.TypeURL, it.Name, refsOf(it.TypeURL, it.Name, it.Body), func() []byte { return it.Body })
	version := r.Version() // makes its own copy of the bytes
	e := t.entries[it.Name]
	if e == nil {
		e = &heldEntry{}
		t.entries[it.Name] = e
	}
	if e.offered != nil && e.offered.Version() == version && e.offered.TypeURL == it.TypeURL {
		e.version = it.Version
		if e.accepted == e.offered {
			e.acceptedVersion = it.Version
		}
		return true
	}
	if e.accepted != nil && e.accepted.Version() == version && e.accepted.TypeURL == it.TypeURL {
		r = e.accepted // back to what it was: one copy
	}
	e.offered, e.version, e.told = r, it.Version, undecided
	t.undecide(it.Name, e)
	return false
}

// undecide forgets what Envoy made of an entry.
func (t *heldType) undecide(name string, e *heldEntry) {
	e.words, e.refusedAt = "", time.Time{}
	delete(t.denied, name)
	t.open[name] = struct{}{}
	t.stale[name] = struct{}{}
}

// remove takes in that the control plane says that a name does not exist, or no more.
func (t *heldType) remove(name string) {
	t.discard(name)
	if _, ok := t.names[name]; ok {
		t.gone[name] = struct{}{}
	}
}

// forget drops a name that nobody wants any more.
func (t *heldType) forget(name string) {
	delete(t.names, name)
	delete(t.gone, name)
	delete(t.retained, name)
	if !t.all {
		t.discard(name)
	}
}

// discard drops an entry.
func (t *heldType) discard(name string) {
	if t.entries[name] != nil {
		delete(t.entries, name)
		t.stale[name] = struct{}{}
	}
	delete(t.open, name)
	delete(t.denied, name)
}

// retain keeps names although the Envoy that wanted them is gone.
func (t *heldType) retain(names map[string]struct{}) {
	if t.retained == nil {
		t.retained = map[string]struct{}{}
	}
	maps.Copy(t.retained, names)
}

// accept notes that Envoy took what is offered of a name.
func (t *heldType) accept(name string) {
	if e := t.entries[name]; e != nil && e.words == "" {
		e.accepted, e.acceptedVersion = e.offered, e.version
	}
	delete(t.open, name)
}

// refuse notes that Envoy does not take that version of a name. False: it is not what is offered, or known.
func (t *heldType) refuse(name, version, words string, at time.Time) bool {
	e := t.entries[name]
	if e == nil || e.offered.Version() != version || e.words != "" {
		return false
	}
	if words == "" {
		words = "Envoy gave no reason"
	}
	e.words, e.refusedAt = words, at
	delete(t.open, name)
	t.denied[name] = struct{}{}
	t.stale[name] = struct{}{}
	return true
}

// keep notes what Envoy had of a name before it refused what is offered. That is newer than what it was known to have accepted when
// the control plane said the refused version before Envoy had answered for this one.
func (t *heldType) keep(name string, had *resource.Resource) {
	e := t.entries[name]
	if had == nil || e.accepted != nil && e.accepted.Version() == had.Version() {
		return
	}
	e.accepted, e.acceptedVersion = had, "" // what the control plane called it is not known any more
}

// retry makes what Envoy refused be offered again, where which says so.
func (t *heldType) retry(which func(*heldEntry) bool) (some bool) {
	for name := range t.denied {
		if e := t.entries[name]; which(e) {
			t.undecide(name, e)
			some = true
		}
	}
	return some
}

// everything makes all that was refused be offered again.
func everything(*heldEntry) bool { return true }

// harmless is what may be offered to any new stream: an earlier Envoy took it, or Envoy has nothing of that name, and so
// nothing to lose.
func (e *heldEntry) harmless() bool { return e.accepted == nil || e.accepted == e.offered }

// claim is what to tell a control plane that is asked anew: what Envoy has, or would get, in the control plane's versions.
// What Envoy refused, or has not judged while it was there, is claimed in the version before, or in none, so that it is said
// again and answered.
func (t *heldType) claim() map[string]string {
	out := make(map[string]string, len(t.entries))
	for name, e := range t.entries {
		_, open := t.open[name]
		switch {
		case e.words == "" && (!open || e.told == taken):
			out[name], e.told = e.version, taken
		case e.accepted != nil && e.accepted != e.offered:
			out[name], e.told = e.acceptedVersion, undecided
		default:
			// It is held all the same, and has to be named: or nobody would say that it is gone.
			out[name], e.told = "", undecided
		}
	}
	return out
}
