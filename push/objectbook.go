package push

import (
	"slices"
	"time"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
)

// objectBook is what sources of configuration say, and which object of each key counts: of those that have it the one of the first
// source, and where none has it what is held (hold.go). Not safe for concurrent use.
type objectBook struct {
	merger  *feed.Merger[config.Key, *config.Object]
	objects Objects                // what counts
	held    map[config.Key]staying // objects that stay although no source has them; setHeld sets them
	besides map[feed.GroupID]int   // beside what they are held, and how many
	gone    gone
	leaves  map[config.Key]bool // objects that went with their source, if no other one has them
	began   time.Time
	// amid is until when other parts of the change may be on their way that took sources out of the list; zero: none are.
	amid time.Time
	// heldNews says that held is other than was told, and inForce that every source has delivered its first complete state: until
	// then nothing of it is in force.
	heldNews, inForce bool
	// beneath is another one, of some of the sources: what it holds is held here too; of that one, this is above it. Nil: there is none.
	beneath, above *objectBook
	// looked is by what it was decided last what is held, and again are keys to look at in the next update, whatever that says.
	looked looked
	again  map[config.Key]bool
	// look is told what sources have of a key, and tell of an object that is held from now on, or in another way; nil: of one that
	// is not any more.
	look func(k config.Key, items []*config.Object)
	tell func(k config.Key, held *config.Object)
}

func newObjectBook(sources []string, began time.Time) *objectBook {
	return &objectBook{
		merger: feed.NewMerger(sources, func(o *config.Object) config.Key { return o.Key }),
		held:   map[config.Key]staying{}, besides: map[feed.GroupID]int{}, gone: gone{}, again: map[config.Key]bool{}, began: began,
		look: func(config.Key, []*config.Object) {}, tell: func(config.Key, *config.Object) {},
	}
}

// lies has what this one holds held by that one too.
func (l *objectBook) lies(above *objectBook) { l.above, above.beneath = above, l }

// arrange has the sources of these names count, in their order, and returns the keys that it touched; anew are the names under
// which there is another one now. The next update knows which objects went with their source.
func (l *objectBook) arrange(sources, anew []string, now time.Time) []config.Key {
	l.amid = now.Add(oneChange)
	touched := l.merger.Arrange(sources)
	l.merger.Anew(anew)
	l.leaves = make(map[config.Key]bool, len(touched))
	for _, k := range touched {
		l.leaves[k] = true
	}
	return touched
}

// update brings what counts of these keys up to date. by says when what held an object before was edited, zero: nobody did that;
// unread are the sources that are waited for.
func (l *objectBook) update(touched []config.Key, by edits, unread func() []string, now time.Time) {
	l.forget(now)
	waits := unread()
	slices.Sort(waits)
	holding := l.holdings(waits, now)
	for _, k := range l.affected(touched, by, waits) {
		items := l.merger.Items(k)
		l.look(k, items)
		if len(items) > 0 {
			l.returned(k)
			l.release(k)
		} else {
			l.depart(k, by, now)
			if l.hold(k, holding(k)) {
				continue
			}
		}
		l.replace(k, items)
	}
	l.leaves = nil
}

// replace puts the first of items in the place of the object of k.
func (l *objectBook) replace(k config.Key, items []*config.Object) {
	old, had := l.objects.Get(k)
	switch {
	case len(items) == 0 && !had, len(items) > 0 && had && same(old, items[0]):
		return
	case len(items) == 0:
		l.objects = l.objects.Without(k)
	default:
		l.objects = l.objects.With(k, items[0])
	}
}

// same says that o tells neither proxies nor people anything that old does not.
func same(old, o *config.Object) bool {
	return old.Hash == o.Hash && old.Revision == o.Revision && old.Origin == o.Origin
}
