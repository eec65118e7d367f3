package push

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
)

// What was in use stays in use until somebody plainly says that it goes. Within its files a source sees to that. Here it is
// seen to between sources: an object that is gone from one stays while another one has it, or may have it, in what is wrong.

// Held is an object that stays in use although no source has it any more.
type Held struct {
	Object *config.Object
	// Beside is where something is wrong; the object stays until nothing is.
	Beside feed.GroupID
}

// staying is why and beside what an object stays in use; the zero value: it does not.
type staying struct {
	why    holding
	beside feed.GroupID
}

// holding is why an object stays in use although no source has it any more.
type holding string

const (
	// heldBefore: it was held before the start, and not all is known yet.
	heldBefore holding = "before"
	// heldRefused: a source has it in a form that is refused. Who moves an object from one source to another, and slips, loses
	// nothing.
	heldRefused holding = "is gone from where it stood, and is refused where it stands now: its last good version stays in use; mend it there, or take it out there too"
	// heldUnread: it went with its source, and others have a part that cannot be read and never was. It may stand there.
	heldUnread holding = "is gone with the source where it stood, and may stand now in a part of another one that cannot be read: it stays in use until that is mended"
	// heldBeside: something was changed with it, and is wrong. It may be what became of it.
	heldBeside holding = "is gone from where it stood, and %s, which was changed with it, has an error: its last good version stays in use; mend that, and put the object back if its removal is not meant"
)

// oneChange is how far apart in time the parts of one change are at most, as filestore has it within a folder.
const oneChange = time.Second

// gone are the objects that were let go lately, and what is wrong elsewhere may yet turn out to mean them.
type gone map[config.Key]departure

// departure is the end of an object.
type departure struct {
	object *config.Object
	edited time.Time // when somebody took it away
	seen   time.Time // when that was seen here
}

// with says that an object was taken away by the change that brought a fault. Of what was wrong with its own source that has
// thought already; what clashes with another one it does not know.
func (d departure) with(f feed.Fault) bool {
	return d.edited.Sub(f.Edited).Abs() <= oneChange && (f.Clash || f.Group.Source != d.object.Origin.Source)
}

// forget lets go of what was seen so long ago that no part of the change is on its way any more: files are left alone for a
// while before they are read.
func (g gone) forget(now time.Time) {
	maps.DeleteFunc(g, func(_ config.Key, d departure) bool { return now.Sub(d.seen) > 2*oneChange })
}

// editing says when what held an object until now was edited; zero: nobody did that.
type editing func(*config.Object) time.Time

// editedBy is what a batch says of that.
func editedBy(b feed.Batch[*config.Object]) editing {
	edited := sync.OnceValue(func() map[string]time.Time {
		out := make(map[string]time.Time, len(b.Updates))
		for _, u := range b.Updates {
			out[u.Group] = u.Edited
		}
		return out
	})
	return func(o *config.Object) time.Time {
		if o.Origin.Source != b.Source {
			return time.Time{}
		}
		return edited()[o.Origin.File]
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

// depart notes that no source has the object of k any more.
func (a *Assembler) depart(k config.Key, at editing, now time.Time) {
	if _, known := a.gone[k]; known || at == nil || a.held[k] != (staying{}) {
		return
	}
	if old, had := a.inputs.Objects.Get(k); had {
		if edited := at(old); !edited.IsZero() {
			a.gone[k] = departure{object: old, edited: edited, seen: now}
		}
	}
}

// holdings says why an object that no source has stays in use, if it does. What is refused, and what cannot be read, is looked
// for when that is first asked.
func (a *Assembler) holdings() func(config.Key) staying {
	refused := sync.OnceValue(a.objects.Refused)
	unread := sync.OnceValues(func() (feed.GroupID, bool) {
		names, _ := a.cfg.names(a.cfg.Sources)
		return a.objects.Unread(names)
	})
	waiting := sync.OnceValue(a.objects.Waiting)
	faults := sync.OnceValue(a.objects.Faults)
	return func(k config.Key) staying {
		was, lately := a.held[k], a.gone[k]
		if id, ok := refused()[k.String()]; ok {
			return staying{heldRefused, id}
		}
		if a.leaves || was.why == heldUnread {
			if id, ok := unread(); ok {
				return staying{heldUnread, id}
			}
		}
		if was.why != "" && a.objects.Faulty(was.beside) {
			return staying{heldBeside, was.beside}
		}
		// Of what clashes the one is heard of before the other.
		if was.why == heldBefore && len(waiting()) > 0 || was.why != "" && slices.Contains(waiting(), was.beside.Source) {
			return was
		}
		if lately.object != nil {
			if i := slices.IndexFunc(faults(), lately.with); i >= 0 {
				return staying{heldBeside, faults()[i].Group}
			}
		}
		return staying{}
	}
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
	a.stand(heldPlace(k.String()), []finding{{problem: why.problem(old)}})
	return true
}

// heldPlace is where it stands that an object, by its name, is held.
func heldPlace(object string) place { return place{group: "held " + object} }

// problem is what operators are told of an object that is held.
func (h staying) problem(o *config.Object) feed.Problem {
	p := feed.Problem{Severity: feed.Warning, Source: o.Origin.Source, Object: o.Key.String(), File: o.Origin.File, Stale: true, Text: string(h.why)}
	if h.why == heldBeside {
		p.Text = fmt.Sprintf(string(h.why), h.beside.Group+" of "+h.beside.Source)
	}
	return p
}

// resume takes in what was held before the start.
func (a *Assembler) resume(all []Held) {
	for _, h := range all {
		k := h.Object.Key
		a.inputs.Objects = a.inputs.Objects.With(k, h.Object)
		a.held[k] = staying{heldBefore, h.Beside}
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
		all = append(all, Held{Object: o, Beside: h.beside})
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
