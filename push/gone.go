package push

import (
	"slices"
	"sync"
	"time"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
)

// oneChange is how far apart in time the parts of one change are at most, as filestore has it within a folder.
const oneChange = time.Second

// gone are the objects that were let go lately, and what is wrong elsewhere may yet turn out to mean them. They are kept over a
// start: the rest of the change may come while nobody looks.
type gone map[config.Key]departure

// departure is the end of an object.
type departure struct {
	object *config.Object
	from   feed.GroupID // what had it, or what it was held beside
	edited time.Time    // when somebody took it away; zero: nobody knows, and only what is refused by its name may mean it
	seen   time.Time    // when that was seen here
	began  time.Time    // when the assembler began, where it may have been taken away before that; zero: it was not
	over   bool         // no part of the change is on its way any more, and it is not kept over a start
}

// with says that an object was taken away by the change that brought a fault: at the same time, or both before the start. Of what was
// wrong with its own source that has thought already; what clashes with another one it does not know.
func (d departure) with(f feed.Fault) bool {
	if d.edited.IsZero() {
		return false
	}
	before := !d.began.IsZero() && f.First && !f.Edited.Before(d.began)
	return (before || d.edited.Sub(f.Edited).Abs() <= oneChange) && (f.Clash || f.Group.Source != d.from.Source)
}

// fault is the first group with a fault that came with it. False: there is none.
func (d departure) fault(all func() []feed.Fault) (feed.GroupID, bool) {
	if d.object == nil {
		return feed.GroupID{}, false
	}
	i := slices.IndexFunc(all(), d.with)
	if i < 0 {
		return feed.GroupID{}, false
	}
	return all()[i].Group, true
}

// kept is what is to be known of it after a start.
func (d departure) kept() Held {
	out := Held{Object: d.object, Beside: d.from, Gone: d.edited}
	if d.edited.IsZero() {
		out.Gone, out.Unedited = d.seen, true
	}
	return out
}

// resumed is a departure of before the start, at began.
func (h Held) resumed(began time.Time) departure {
	if h.Unedited {
		return departure{object: h.Object, from: h.Beside, seen: began}
	}
	return departure{object: h.Object, from: h.Beside, edited: h.Gone, seen: began, began: began}
}

// lapses says when what was seen so long ago that no part of the change is on its way any more is forgotten: files are left alone for
// a while before they are read.
func (d departure) lapses() time.Time { return d.seen.Add(2 * oneChange) }

// edits are when groups were edited, by what a source says.
type edits struct {
	source string
	times  func() map[string]time.Time
	first  bool            // it is the first that it says: of what went before the start too
	looked map[string]bool // groups that were not seen since the start until then: of them too
}

// editedBy is what a batch says of that, which is not taken in yet.
func (a *Assembler) editedBy(b feed.Batch[*config.Object]) edits {
	looked := map[string]bool{}
	for _, u := range b.Updates {
		if a.objects.StandsIn(feed.GroupID{Source: b.Source, Group: u.Group}) {
			looked[u.Group] = true
		}
	}
	first := b.Full && slices.Contains(a.objects.Waiting(), b.Source)
	return edits{source: b.Source, first: first, looked: looked, times: sync.OnceValue(func() map[string]time.Time {
		out := make(map[string]time.Time, len(b.Updates))
		for _, u := range b.Updates {
			out[u.Group] = u.Edited
		}
		return out
	})}
}

// of is when a group was edited; zero: nobody did that.
func (e edits) of(id feed.GroupID) time.Time {
	if e.times == nil || id.Source != e.source {
		return time.Time{}
	}
	return e.times()[id.Group]
}

// depart notes that no source has the object of k any more, and what had it, or what it is held beside, was edited.
func (l *objectBook) depart(k config.Key, by edits, now time.Time) {
	if !l.gone[k].edited.IsZero() {
		return
	}
	old, had := l.objects.Get(k)
	if !had {
		return
	}
	from, was := feed.GroupID{Source: old.Origin.Source, Group: old.Origin.File}, l.held[k]
	if was.why != "" {
		from = was.beside
	}
	d := departure{object: old, from: from, edited: by.of(from), seen: now}
	switch {
	case !d.edited.IsZero():
	case was.why != "":
		return
	default:
		l.gone[k], l.heldNews = d, true
		return
	}
	if by.looked[from.Group] || by.first && !d.edited.Before(l.began) {
		d.began = l.began
	}
	l.gone[k], l.heldNews = d, true
}

// recall notes the objects that went from a source while nobody looked. What was changed before the start is one change. Sources
// that nobody waits for are heard for as long as parts of a change may be on their way.
func (l *objectBook) recall(b feed.Batch[*config.Object], now time.Time) {
	if l.inForce && now.Sub(l.began) > 2*oneChange {
		return
	}
	for _, u := range b.Updates {
		for _, o := range u.Was {
			if !l.gone[o.Key].edited.IsZero() || l.held[o.Key].why != "" {
				continue
			}
			d := departure{object: o, from: feed.GroupID{Source: b.Source, Group: u.Group}, edited: u.Edited, seen: now}
			if !d.edited.IsZero() {
				d.began = l.began
			}
			l.gone[o.Key], l.again[o.Key], l.heldNews = d, true, true
		}
	}
}

// returned is that an object did not go after all, or is held.
func (l *objectBook) returned(k config.Key) {
	if d, known := l.gone[k]; known {
		delete(l.gone, k)
		l.heldNews = l.heldNews || !d.over
	}
}

// forget lets go of departures that are over. Until there is a context nothing of them is in force, nor of one that is held because it
// is waited for a source.
func (l *objectBook) forget(now time.Time) {
	for k, d := range l.gone {
		switch {
		case !now.After(d.lapses()) || l.held[k].waits != "":
		case l.inForce:
			delete(l.gone, k)
			l.heldNews = l.heldNews || !d.over
		case d.began.IsZero() && !d.over:
			d.over = true
			l.gone[k], l.heldNews = d, true
		}
	}
}

// lapse forgets what is over, and returns after how long there is more of that; zero: there is none.
func (l *objectBook) lapse(now time.Time) (wait time.Duration) {
	l.forget(now)
	for k, d := range l.gone {
		if !d.over && (l.inForce || d.began.IsZero()) && l.held[k].why == "" {
			wait = soonest(wait, d.lapses().Sub(now)+1) // until it is over
		}
	}
	return wait
}

// lapse is that of what is in use, and of what is told.
func (a *Assembler) lapse(now time.Time) time.Duration {
	wait := a.use.lapse(now)
	if a.own != nil {
		wait = soonest(wait, a.own.objects.lapse(now))
	}
	a.tellHeld()
	return wait
}
