package push

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
)

// What was in use stays in use until somebody plainly says that it goes. Within its files a source sees to that. Here it is
// seen to between sources, by one law: an object that no source has is held for as long as there is a doubt whether it is meant to
// go. There are two.
//
//   - Something is wrong at a place which may be about it: the object is refused there, was changed with what is wrong there, or
//     went with its source while that place cannot be read.
//   - It is not known whether something is: the place, or any source if the object went with its own, was not seen since the
//     start.
//
// Each object that is held is held, and kept over a start, by itself, with the place. Once some source has had it, it goes as
// anything does that a source has: nobody remembers who had it before.

// Held is an object that stays in use although no source has it any more.
type Held struct {
	Object *config.Object
	// Beside is where something is wrong; the object stays until it is known that nothing is. Zero: it stays for no place.
	Beside feed.GroupID
	// Left says that it went with its source, or that the source of Beside went.
	Left bool
}

// staying is why and beside what an object stays in use; the zero value: it does not.
type staying struct {
	why    holding
	beside feed.GroupID
	left   bool
	waits  string // the sources that were not seen, where that is why
}

// holding is why an object stays in use although no source has it any more.
type holding string

const (
	// heldRefused: a source has it in a form that is refused. Who moves an object from one source to another, and slips, loses
	// nothing.
	heldRefused holding = "is gone from where it stood, and is refused where it stands now: its last good version stays in use; mend it there, or take it out there too"
	// heldUnread: it went with its source, and others have a part that cannot be read as it is now. It may stand there.
	heldUnread holding = "is gone with the source where it stood, and may stand now in a part of another one that cannot be read: it stays in use until that is mended"
	// heldBeside: something was changed with it, and is wrong. It may be what became of it.
	heldBeside holding = "is gone from where it stood, and %s, which was changed with it, has an error: its last good version stays in use; mend that, and put the object back if its removal is not meant"
	// heldBefore: it was held before the start, and it is not known what is wrong now.
	heldBefore holding = "is gone from where it stood, with an error in %s before the start, and not read since is %s: its last good version stays in use until that is read"
	// heldLeft: it went with its source, and may stand now in one that was not seen.
	heldLeft holding = "is gone with the source where it stood, and may stand now in what was not read since, %s: it stays in use until that is read; take that out of the list of sources too if it is away for good"
)

// oneChange is how far apart in time the parts of one change are at most, as filestore has it within a folder.
const oneChange = time.Second

// gone are the objects that were let go lately, and what is wrong elsewhere may yet turn out to mean them.
type gone map[config.Key]departure

// departure is the end of an object.
type departure struct {
	object *config.Object
	from   string    // the source that had it, or beside which it was held
	edited time.Time // when somebody took it away
	seen   time.Time // when that was seen here
	began  time.Time // when the assembler began, where it was taken away while nobody looked, before that; zero: it was not
}

// with says that an object was taken away by the change that brought a fault. Of what was wrong with its own source that has
// thought already; what clashes with another one it does not know.
func (d departure) with(f feed.Fault) bool {
	return (d.edited.Sub(f.Edited).Abs() <= oneChange || !d.began.IsZero() && !f.Edited.Before(d.began)) && (f.Clash || f.Group.Source != d.from)
}

// forget lets go of what was seen so long ago that no part of the change is on its way any more: files are left alone for a
// while before they are read.
func (g gone) forget(now time.Time) {
	maps.DeleteFunc(g, func(_ config.Key, d departure) bool { return now.Sub(d.seen) > 2*oneChange })
}

// editing says when a group was edited; zero: nobody did that.
type editing func(feed.GroupID) time.Time

// editedBy is what a batch says of that.
func editedBy(b feed.Batch[*config.Object]) editing {
	edited := sync.OnceValue(func() map[string]time.Time {
		out := make(map[string]time.Time, len(b.Updates))
		for _, u := range b.Updates {
			out[u.Group] = u.Edited
		}
		return out
	})
	return func(id feed.GroupID) time.Time {
		if id.Source != b.Source {
			return time.Time{}
		}
		return edited()[id.Group]
	}
}

// withHeld are keys, and those of the objects that are held or were let go lately besides.
func (a *Assembler) withHeld(touched []config.Key) []config.Key {
	if len(a.held)+len(a.gone) == 0 {
		return touched
	}
	all := make(map[config.Key]bool, len(touched)+len(a.held)+len(a.gone))
	for k := range a.held {
		all[k] = true
	}
	for k := range a.gone {
		all[k] = true
	}
	for _, k := range touched {
		all[k] = true
	}
	return slices.Collect(maps.Keys(all))
}

// depart notes that no source has the object of k any more, and what had it, or what it is held beside, was edited.
func (a *Assembler) depart(k config.Key, at editing, now time.Time) {
	if _, known := a.gone[k]; known || at == nil {
		return
	}
	old, had := a.inputs.Objects.Get(k)
	if !had {
		return
	}
	from := feed.GroupID{Source: old.Origin.Source, Group: old.Origin.File}
	if was := a.held[k]; was.why != "" {
		from = was.beside
	}
	if edited := at(from); !edited.IsZero() {
		a.gone[k] = departure{object: old, from: from.Source, edited: edited, seen: now}
	}
}

// recall notes the objects that went from a source while nobody looked. What was changed before the start is one change.
func (a *Assembler) recall(b feed.Batch[*config.Object], now time.Time) {
	if a.ready {
		return
	}
	for _, u := range b.Updates {
		for _, o := range u.Was {
			if _, known := a.gone[o.Key]; !known && a.held[o.Key].why == "" && !u.Edited.IsZero() {
				a.gone[o.Key] = departure{object: o, from: b.Source, edited: u.Edited, seen: now, began: a.began}
			}
		}
	}
}

// holdings says why an object that no source has stays in use, if it does. What holds for all objects is looked for when that is
// first asked.
func (a *Assembler) holdings() func(config.Key) staying {
	refused, faults := sync.OnceValue(a.objects.Refused), sync.OnceValue(a.objects.Faults)
	unread := sync.OnceValues(a.objects.Unread)
	unseen, seen := sync.OnceValue(a.unseen), a.objects.Seen()
	return func(k config.Key) staying {
		was, lately := a.held[k], a.gone[k]
		left := a.leaves[k] || was.left || was.why != "" && !a.objects.Has(was.beside.Source)
		if id, ok := refused()[k.String()]; ok {
			return staying{why: heldRefused, beside: id, left: left}
		}
		if id, ok := unread(); left && ok {
			return staying{why: heldUnread, beside: id, left: left}
		}
		if was.why != "" && a.objects.Has(was.beside.Source) {
			if still := a.still(was, left, seen); still.why != "" {
				return still
			}
		}
		if left && unseen() != "" {
			return staying{why: heldLeft, left: left, waits: unseen()}
		}
		if lately.object != nil {
			if i := slices.IndexFunc(faults(), lately.with); i >= 0 {
				return staying{why: heldBeside, beside: faults()[i].Group}
			}
		}
		return staying{}
	}
}

// still says whether an object is held beside what it was held beside until now.
func (a *Assembler) still(was staying, left bool, seen func(feed.GroupID) bool) staying {
	if a.objects.Faulty(was.beside) {
		return staying{why: heldBeside, beside: was.beside, left: left}
	}
	if !seen(was.beside) {
		return staying{why: heldBefore, beside: was.beside, left: left, waits: was.beside.Source}
	}
	// of what clashes the one is heard of before the other
	if waiting := a.objects.Waiting(); was.why == heldBefore && len(waiting) > 0 {
		slices.Sort(waiting)
		return staying{why: heldBefore, beside: was.beside, left: left, waits: strings.Join(waiting, ", ")}
	}
	return staying{}
}

// unseen are the sources in which an object may stand that went with its own: those of objects of which not all was seen, and
// those of services that are waited for.
func (a *Assembler) unseen() string {
	names := a.objects.Unseen()
	for _, name := range a.unread() {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// hold keeps the object of k in use for a reason, or puts it back, and says whether there is one. What is not in use, and was
// not lately, is not held.
func (a *Assembler) hold(k config.Key, why staying) bool {
	old, had := a.inputs.Objects.Get(k)
	if lately := a.gone[k]; !had && lately.object != nil && why.why != "" {
		old, had = lately.object, true
		a.inputs.Objects = a.inputs.Objects.With(k, old)
	}
	if !had {
		why = staying{}
	}
	if a.held[k] == why {
		return why.why != ""
	}
	a.heldNews = true
	if why.why == "" {
		delete(a.held, k)
		a.stand(heldPlace(k.String()), nil)
		return false
	}
	delete(a.gone, k)
	a.held[k] = why
	a.standHeld(k, old)
	return true
}

// standHeld has people told of an object that is held. What waits for a source alone is in the list, and nobody is called for
// it: after a start that is so for a moment.
func (a *Assembler) standHeld(k config.Key, o *config.Object) {
	at, found := heldPlace(k.String()), []finding{{problem: a.held[k].problem(o)}}
	if a.held[k].waits == "" {
		a.stand(at, found)
		return
	}
	a.found.set(at, nil)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.between[at] = found
}

// heldPlace is where it stands that an object, by its name, is held.
func heldPlace(object string) place { return place{group: "held " + object} }

// problem is what operators are told of an object that is held.
func (h staying) problem(o *config.Object) feed.Problem {
	p := feed.Problem{Severity: feed.Warning, Source: o.Origin.Source, Object: o.Key.String(), File: o.Origin.File, Stale: true, Text: string(h.why)}
	switch h.why {
	case heldBeside:
		p.Text = fmt.Sprintf(string(h.why), h.beside.Group+" of "+h.beside.Source)
	case heldBefore:
		p.Text = fmt.Sprintf(string(h.why), h.beside.Group+" of "+h.beside.Source, h.waits)
	case heldLeft:
		p.Text = fmt.Sprintf(string(h.why), h.waits)
	}
	return p
}

// resume takes in what was held before the start, and what sources said then that there are not any more.
func (a *Assembler) resume(held []Held, before []feed.Batch[*config.Object]) {
	for _, h := range held {
		a.inputs.Objects = a.inputs.Objects.With(h.Object.Key, h.Object)
		a.held[h.Object.Key] = staying{why: heldBefore, beside: h.Beside, left: h.Left}
	}
	for _, b := range before {
		a.left = append(a.left, b.Source)
		for _, u := range b.Updates {
			for _, o := range u.Items {
				if _, known := a.held[o.Key]; known { // what is held was in use
					continue
				}
				a.inputs.Objects = a.inputs.Objects.With(o.Key, o)
				a.held[o.Key] = staying{why: heldLeft, left: true}
				a.heldNews = true
			}
		}
	}
}

// tellHeld tells what is held, when that is other than before.
func (a *Assembler) tellHeld() {
	if !a.heldNews {
		return
	}
	a.heldNews = false
	if a.cfg.Keep == nil {
		return
	}
	all := make([]Held, 0, len(a.held))
	for k, h := range a.held {
		o, _ := a.inputs.Objects.Get(k) // what is held is in use
		all = append(all, Held{Object: o, Beside: h.beside, Left: h.left})
	}
	slices.SortFunc(all, func(x, y Held) int { return x.Object.Key.Compare(y.Object.Key) })
	a.cfg.Keep(all)
}

// enforce completes a problem of an object that should protect, and of which its source has no version that could: another
// one may be in use. The caller holds mu.
func (a *Assembler) enforce(p *feed.Problem) {
	if !p.Unenforced {
		return
	}
	if _, held := a.between[heldPlace(p.Object)]; held {
		p.Stale = true
		p.Text += "; until then its last good version stays in use"
		return
	}
	if items := a.objects.Items(config.ParseKey(p.Object)); len(items) > 0 {
		p.Text += fmt.Sprintf("; until then the one in %s is in use", cmp.Or(placeOutside(items[0], p.Source), items[0].Origin.Source))
		return
	}
	p.Text += "; nothing is enforced for it until it is mended"
}
