package push

import (
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
// anything does that a source has: nobody remembers who had it before. One that goes is remembered for as long as other parts of
// the change that took it away may be on their way, over a start too.

// staying is why and beside what an object stays in use; the zero value: it does not.
type staying struct {
	why    holding
	beside feed.GroupID
	left   bool
	waits  string // the sources that were not seen, where that is why
}

// holding is why an object stays in use although no source has it any more, for people: a format of what it does, "stays in use", of
// what it is held beside, and of the sources that it waits for.
type holding string

const (
	// heldRefused: a source has it in a form that is refused. Who moves an object from one source to another, and slips, loses
	// nothing.
	heldRefused holding = "is gone from where it stood, and is refused where it stands now: its last good version %[1]s; mend it there, or take it out there too"
	// heldUnread: it went with its source, and others have a part that cannot be read as it is now. It may stand there.
	heldUnread holding = "is gone with the source where it stood, and may stand now in a part of another one that cannot be read: it %[1]s until that is mended"
	// heldBeside: something was changed with it, and is wrong. It may be what became of it.
	heldBeside holding = "is gone from where it stood, and %[2]s, which was changed with it, has an error: its last good version %[1]s; mend that, and put the object back if its removal is not meant"
	// heldBefore: it was held before the start, and it is not known what is wrong now.
	heldBefore holding = "is gone from where it stood, with an error in %[2]s before the start, and not read since is %[3]s: its last good version %[1]s until that is read"
	// heldLeft: it went with its source, and may stand now in one that was not seen.
	heldLeft holding = "is gone with the source where it stood, and may stand now in what was not read since, %[3]s: it %[1]s until that is read; take that out of the list of sources too if it is away for good"
)

// looked is by what it was decided last which objects are held. While it is the same, and nothing is edited that something is held
// beside, it would be decided in the same way again.
type looked struct {
	doubts uint64    // of the merger
	unread string    // the sources that are waited for
	amid   time.Time // until when parts of a change of the list may be on their way
}

// affected are the keys whose objects may be others than before, or be held in another way: those that are touched, those that are to
// be looked at again, and where everything may be decided otherwise, all that are held, here or beneath, or were let go lately.
func (l *objectBook) affected(touched []config.Key, by edits, unread []string) []config.Key {
	now := looked{l.merger.Doubts(), strings.Join(unread, " "), l.amid}
	whole := now != l.looked || l.edited(by)
	l.looked = now
	all := l.again
	l.again = map[config.Key]bool{}
	if whole {
		for k := range l.held {
			all[k] = true
		}
		for k := range l.gone {
			all[k] = true
		}
		if l.beneath != nil {
			for k := range l.beneath.held {
				all[k] = true
			}
		}
	}
	if len(all) == 0 {
		return touched
	}
	for _, k := range touched {
		all[k] = true
	}
	return slices.Collect(maps.Keys(all))
}

// edited says that something that objects are held beside was.
func (l *objectBook) edited(by edits) bool {
	if by.times == nil || len(l.besides) == 0 {
		return false
	}
	for name := range by.times() {
		if l.besides[feed.GroupID{Source: by.source, Group: name}] > 0 {
			return true
		}
	}
	return false
}

// holdings says why an object that no source has stays in use, if it does. What holds for all objects is looked for when that is
// first asked. Each thing that this depends on, but for what is kept of the object itself, is part of looked.
func (l *objectBook) holdings(unread []string, now time.Time) func(config.Key) staying {
	refused, faults := sync.OnceValue(l.merger.Refused), sync.OnceValue(l.merger.Faults)
	unreadable := sync.OnceValues(l.merger.Unread)
	unseen, seen := sync.OnceValue(func() string { return l.unseen(unread) }), l.merger.Seen()
	return func(k config.Key) staying {
		was, lately := l.held[k], l.gone[k]
		left := l.leaves[k] || was.left || was.why != "" && !l.merger.Has(was.beside.Source)
		if id, ok := refused()[k.String()]; ok {
			return staying{why: heldRefused, beside: id, left: left}
		}
		if id, ok := unreadable(); left && ok {
			return staying{why: heldUnread, beside: id, left: left}
		}
		if was.why != "" && l.merger.Has(was.beside.Source) {
			still := l.still(was, left, seen)
			if id, ok := lately.fault(faults); ok && still.waits != "" {
				return staying{why: heldBeside, beside: id, left: left}
			}
			if still.why != "" {
				return still
			}
		}
		if left && unseen() != "" {
			return staying{why: heldLeft, left: left, waits: unseen()}
		}
		if left && now.Before(l.amid) {
			return staying{why: heldLeft, left: left, waits: "what is changed at the same time"}
		}
		if id, ok := lately.fault(faults); ok {
			return staying{why: heldBeside, beside: id}
		}
		return staying{}
	}
}

// still says whether an object is held beside what it was held beside until now.
func (l *objectBook) still(was staying, left bool, seen func(feed.GroupID) bool) staying {
	if l.merger.Faulty(was.beside) {
		return staying{why: heldBeside, beside: was.beside, left: left}
	}
	if !seen(was.beside) {
		return staying{why: heldBefore, beside: was.beside, left: left, waits: was.beside.Source}
	}
	// of what clashes the one is heard of before the other
	if waiting := l.merger.Waiting(); was.why == heldBefore && len(waiting) > 0 {
		slices.Sort(waiting)
		return staying{why: heldBefore, beside: was.beside, left: left, waits: strings.Join(waiting, ", ")}
	}
	return staying{}
}

// unseen are the sources in which an object may stand that went with its own: those of objects of which not all was seen, and
// those of services that are waited for.
func (l *objectBook) unseen(unread []string) string {
	names := l.merger.Unseen()
	for _, name := range unread {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// hold keeps the object of k in use for a reason, or puts it back, and says whether there is one. What is not in use, and was
// not lately, is not held. What beneath holds is held here too, as it holds it.
func (l *objectBook) hold(k config.Key, why staying) bool {
	old, had := l.objects.Get(k)
	if b := l.beneath; b != nil && b.held[k].why != "" {
		why, had = b.held[k], true
		if o := b.objects.At(k); o != old {
			old, l.objects = o, l.objects.With(k, o)
		}
	}
	if lately := l.gone[k]; !had && lately.object != nil && why.why != "" {
		old, had = lately.object, true
		l.objects = l.objects.With(k, old)
	}
	if !had {
		why = staying{}
	}
	if why.why != "" && why.waits == "" { // what it waits for may be a part of the change that took it away
		l.returned(k)
	}
	if l.held[k] == why {
		return why.why != ""
	}
	if why.why == "" {
		l.release(k)
		return false
	}
	l.heldNews = true
	l.setHeld(k, why)
	l.tell(k, old)
	return true
}

// setHeld notes why an object is held; the zero value: it is not any more. What is above this looks at it again.
func (l *objectBook) setHeld(k config.Key, why staying) {
	if old := l.held[k]; old.why != "" {
		if l.besides[old.beside]--; l.besides[old.beside] == 0 {
			delete(l.besides, old.beside)
		}
	}
	if delete(l.held, k); why.why != "" {
		l.held[k] = why
		l.besides[why.beside]++
	}
	if l.above != nil {
		l.above.again[k] = true
	}
}

// release holds the object of k no more.
func (l *objectBook) release(k config.Key) {
	if l.held[k].why == "" {
		return
	}
	l.heldNews = true
	l.setHeld(k, staying{})
	l.tell(k, nil)
}
