package push

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
)

// heldBooks are the books of what is in use and of what is told, with so many objects that are held since their source left while
// another one is away, and one that somebody edits.
type heldBooks struct {
	use, own           *objectBook
	useWaits, ownWaits []string // sources of services that are waited for
	now                time.Time
}

func newHeldBooks(n int) *heldBooks {
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	names := []string{"left", "away", "edited"}
	h := &heldBooks{use: newObjectBook(names, began), own: newObjectBook(names, began), now: began}
	h.own.lies(h.use)
	left := feed.Batch[*config.Object]{Source: "left", Full: true}
	for i := range n {
		name := fmt.Sprint("held-", i)
		left.Updates = append(left.Updates, feed.Update[*config.Object]{Group: name, Items: []*config.Object{h.object("left", name, 1)}})
	}
	h.say(left)
	h.say(feed.Batch[*config.Object]{Source: "edited", Full: true})
	h.own.inForce, h.use.inForce = true, true
	h.update(h.own.arrange(names[1:], nil, h.now), h.use.arrange(names[1:], nil, h.now), edits{})
	h.now = h.now.Add(time.Minute)
	h.own.amid, h.use.amid = time.Time{}, time.Time{}
	h.update(nil, nil, edits{})
	return h
}

// update brings both up to date, in the order in which an assembler does.
func (h *heldBooks) update(own, use []config.Key, by edits) {
	h.own.update(own, by, func() []string { return slices.Clone(h.ownWaits) }, h.now)
	h.use.update(use, by, func() []string { return slices.Clone(h.useWaits) }, h.now)
}

func (h *heldBooks) object(source, name string, hash uint64) *config.Object {
	return &config.Object{Key: config.Key{Kind: config.ServiceEntry, Namespace: "a", Name: name}, Hash: hash, Origin: config.Origin{Source: source, File: name}}
}

// say has a source say something, to both.
func (h *heldBooks) say(b feed.Batch[*config.Object]) {
	times := map[string]time.Time{}
	for _, u := range b.Updates {
		times[u.Group] = u.Edited
	}
	h.update(h.own.merger.Apply(b, h.now), h.use.merger.Apply(b, h.now), edits{source: b.Source, times: func() map[string]time.Time { return times }})
}

// edit changes an object that is nothing to those that are held.
func (h *heldBooks) edit(i int) {
	h.now = h.now.Add(time.Minute)
	u := feed.Update[*config.Object]{Group: "web", Items: []*config.Object{h.object("edited", "web", uint64(i))}, Edited: h.now}
	h.say(feed.Batch[*config.Object]{Source: "edited", Updates: []feed.Update[*config.Object]{u}})
}

// looks counts the objects that are looked at while do is at work, in both.
func (h *heldBooks) looks(do func()) (own, use int) {
	h.own.look = func(config.Key, []*config.Object) { own++ }
	h.use.look = func(config.Key, []*config.Object) { use++ }
	do()
	return own, use
}

// held checks how many are held, in both.
func (h *heldBooks) held(t *testing.T, what string, own, use int) {
	t.Helper()
	if len(h.own.held) != own || len(h.use.held) != use {
		t.Errorf("%s: %d and %d are held, want %d and %d", what, len(h.own.held), len(h.use.held), own, use)
	}
}

// What is held is not looked at again by each change of something else: many may be held for a long time.
func TestHeldIsLookedAtOnce(t *testing.T) {
	t.Parallel()
	h := newHeldBooks(100)
	h.held(t, "a source is away", 100, 100)
	for i := range 2 {
		if own, use := h.looks(func() { h.edit(i + 1) }); own != 1 || use != 1 {
			t.Errorf("a change of one object has %d and %d looked at, want one each", own, use)
		}
	}
	h.held(t, "something was changed", 100, 100)
	wrong := feed.Update[*config.Object]{Group: "wrong", Problems: []feed.Problem{{Severity: feed.Error, Object: h.object("", "held-1", 1).Key.String()}}}
	h.say(feed.Batch[*config.Object]{Source: "edited", Updates: []feed.Update[*config.Object]{wrong}})
	h.say(feed.Batch[*config.Object]{Source: "away", Full: true})
	h.held(t, "it was read, and one is refused elsewhere", 1, 1)
}

// What waits for a source of services goes when that was read, or is waited for no more, though nothing else is other than before; what
// is held beneath alone goes with that.
func TestHeldForServices(t *testing.T) {
	t.Parallel()
	h := newHeldBooks(3)
	h.ownWaits, h.useWaits = []string{"registry"}, []string{"registry", "another"}
	h.say(feed.Batch[*config.Object]{Source: "away", Full: true})
	h.held(t, "sources of services are waited for", 3, 3)
	h.useWaits = nil
	h.update(nil, nil, edits{})
	h.held(t, "one of them for what is told", 3, 3)
	h.ownWaits = nil
	h.update(nil, nil, edits{})
	h.held(t, "none is", 0, 0)
	h = newHeldBooks(3)
	h.useWaits = []string{"registry"}
	h.say(feed.Batch[*config.Object]{Source: "away", Full: true})
	h.held(t, "one for what is in use", 0, 3)
	h.useWaits = nil
	h.update(nil, nil, edits{})
	h.held(t, "none is any more", 0, 0)
}

// An edit of what an object is held beside is a part of the change that took it away, also where nothing is wrong with it and the object
// stays, since another source was not read: when that is, with an error of that time, it stays beside that.
func TestHeldBesideWhatIsEdited(t *testing.T) {
	t.Parallel()
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	h := &heldBooks{use: newObjectBook([]string{"away", "edited"}, began), own: newObjectBook([]string{"away", "edited"}, began), now: began}
	h.own.lies(h.use)
	x := Held{Object: h.object("edited", "x", 1), Beside: feed.GroupID{Source: "edited", Group: "web"}}
	h.own.resume([]Held{x}, nil)
	h.use.resume([]Held{x}, nil)
	h.say(feed.Batch[*config.Object]{Source: "edited", Full: true, Updates: []feed.Update[*config.Object]{{Group: "web", Items: []*config.Object{h.object("edited", "web", 1)}}}})
	h.held(t, "a source was not read", 1, 1)
	h.now = began.Add(time.Hour)
	h.edit(2)
	wrong := feed.Update[*config.Object]{Group: "z", Edited: h.now, Problems: []feed.Problem{{Severity: feed.Error, Object: "z"}}}
	h.say(feed.Batch[*config.Object]{Source: "away", Full: true, Updates: []feed.Update[*config.Object]{wrong}})
	for _, l := range []*objectBook{h.own, h.use} {
		if got := l.held[x.Object.Key].beside; got != (feed.GroupID{Source: "away", Group: "z"}) {
			t.Errorf("it is held beside %v", got)
		}
	}
}

// BenchmarkEditBesideHeld is a changed object while 10,000 are held, where there are readers.
func BenchmarkEditBesideHeld(b *testing.B) {
	h := newHeldBooks(10_000)
	if len(h.use.held) != 10_000 || len(h.own.held) != 10_000 {
		b.Fatal("they are not held")
	}
	i := 0
	for b.Loop() {
		i++
		h.edit(i)
	}
}
