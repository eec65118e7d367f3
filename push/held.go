package push

import (
	"cmp"
	"slices"
	"time"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
)

// Held is an object that stays in use although no source has it any more.
type Held struct {
	Object *config.Object
	// Beside is where something is wrong; the object stays until it is known that nothing is. Zero: it stays for no place.
	Beside feed.GroupID
	// Left says that it went with its source, or that the source of Beside went.
	Left bool
	// Untold says that it stays, or may come back, for what foreign sources may say alone, so that others are not told of it (see
	// Telling). What they were told until lately may be there beside it, as Gone.
	Untold bool
	// Gone is when somebody took it away from Beside, or mended that: it is in use no more, unless a part of the same change is
	// wrong that was not heard of yet. Zero: it is in use.
	Gone time.Time
	// Unedited says of what is gone that this is only when it was seen: nobody knows when somebody took it away, and only what refuses
	// it by its name means it.
	Unedited bool
}

// resume takes in what was held before the start, and what sources said then that there are not any more.
func (l *objectBook) resume(held []Held, before []feed.Batch[*config.Object]) {
	for _, h := range held {
		if !h.Gone.IsZero() {
			l.gone[h.Object.Key] = h.resumed(l.began)
			continue
		}
		l.objects = l.objects.With(h.Object.Key, h.Object)
		l.setHeld(h.Object.Key, staying{why: heldBefore, beside: h.Beside, left: h.Left})
	}
	for _, b := range before {
		for _, u := range b.Updates {
			for _, o := range u.Items {
				if _, known := l.held[o.Key]; known { // what is held was in use
					continue
				}
				l.objects = l.objects.With(o.Key, o)
				l.setHeld(o.Key, staying{why: heldLeft, left: true})
				delete(l.gone, o.Key)
				l.heldNews = true
			}
		}
	}
}

// tellHeld tells what is held, and what was let go lately, when that is other than before: what others are told too, though another
// version is in use here.
func (a *Assembler) tellHeld() {
	news := a.use.heldNews
	a.use.heldNews = false
	if a.own != nil {
		news = news || a.own.objects.heldNews
		a.own.objects.heldNews = false
	}
	if !news || a.cfg.Keep == nil {
		return
	}
	all := a.use.keep(a.own != nil)
	if a.own != nil {
		told := a.own.objects
		all = slices.DeleteFunc(all, func(h Held) bool { // what is told says it too
			d, gone := told.gone[h.Object.Key]
			return told.held[h.Object.Key].why != "" || gone && !d.over && !h.Gone.IsZero()
		})
		all = append(all, told.keep(false)...)
	}
	slices.SortFunc(all, func(x, y Held) int { return cmp.Or(x.Object.Key.Compare(y.Object.Key), x.Gone.Compare(y.Gone)) })
	a.cfg.Keep(all)
}

// keep is what is held, and what was let go lately.
func (l *objectBook) keep(untold bool) []Held {
	all := make([]Held, 0, len(l.held)+len(l.gone))
	for k, h := range l.held {
		o, _ := l.objects.Get(k) // what is held counts
		all = append(all, Held{Object: o, Beside: h.beside, Left: h.left, Untold: untold})
	}
	for k, d := range l.gone {
		if !d.over && l.held[k].why == "" {
			one := d.kept()
			one.Untold = untold
			all = append(all, one)
		}
	}
	return all
}
