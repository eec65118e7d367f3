package consul

import (
	"fmt"
	"time"

	"github.com/ashore-mesh/ashore/internal/feed"
)

// review decides what is told of troubles, and when to look again for the sake of time alone; zero: there is no need.
func (k *keeper) review(now time.Time) (next time.Time) {
	k.dirty = false
	whole := k.whole()
	if k.stands.set(whole, now) {
		k.over = now
	}
	first := &sooner{}
	k.reviewPlaces(whole, now, first)
	told := part{}
	for _, sc := range k.ordered() {
		if sc.lostElse {
			k.tellLost(sc)
		}
		k.reviewPlace(sc, whole != nil, now, first)
		k.reviewServices(sc, whole != nil, now, first)
		told.add(sc)
	}
	k.write(told, now, first)
	return first.at
}

// sooner is the first of several times.
type sooner struct{ at time.Time }

func (s *sooner) or(t time.Time) {
	if !t.IsZero() && (s.at.IsZero() || t.Before(s.at)) {
		s.at = t
	}
}

// ripe says whether a trouble of a part is to be told: it is not covered by one of more, and has lasted. What is sent first is
// told at once with what is wrong with it.
func (k *keeper) ripe(t *trouble, covered bool, after, now time.Time, first *sooner) bool {
	if covered {
		return false // its end has it reviewed
	}
	at := t.settled(after)
	if k.told && now.Before(at) {
		first.or(at)
		return false
	}
	return true
}

// reviewPlaces is about the datacenters that there are, once some are known.
func (k *keeper) reviewPlaces(whole *trouble, now time.Time, first *sooner) {
	t := k.unplaced
	if !k.placed || t == nil {
		k.notify(k.datacentersNotice, nil, time.Time{})
		return
	}
	if k.datacentersNotice.problem != nil || k.ripe(t, whole != nil, k.over, now, first) {
		p := t.problem("Consul", false)
		p.Text += "; those that are known are followed as before"
		k.notify(k.datacentersNotice, &p, time.Time{})
	}
}

// reviewPlace is about a place.
func (k *keeper) reviewPlace(sc *scope, covered bool, now time.Time, first *sooner) {
	t, n := sc.away(), sc.awayNotice
	switch {
	case t == nil && k.lingers(sc, now, first):
		k.notify(n, n.problem, sc.old)
	case t == nil:
		if k.told && !sc.old.IsZero() {
			k.outlast(sc)
		}
		sc.old = time.Time{}
		k.notify(n, nil, time.Time{})
	default:
		if !sc.old.IsZero() && sc.old.Before(t.since) {
			t.since = sc.old // one trouble came before the end of another
		}
		if n.problem != nil || k.ripe(t, covered, k.over, now, first) {
			p := t.problem(sc.at.title(), sc.has())
			sc.old = t.since
			k.notify(n, &p, sc.old)
		} else if covered {
			sc.old = t.since
		} else {
			k.notify(n, nil, sc.old) // what was old does not become new because others are
		}
	}
	r := sc.troubles[askRestored]
	if r == nil || t != nil {
		k.notify(sc.restoredNotice, nil, time.Time{}) // what is wrong with the place says so
	} else if sc.restoredNotice.problem != nil || k.ripe(r, covered, later(k.over, sc.named), now, first) {
		p := r.problem(sc.at.title(), false)
		p.Text += "; until it can, a restoration may be noticed late"
		k.notify(sc.restoredNotice, &p, time.Time{})
	}
}

// lingers says that a place which was away, or was so with all of Consul, is so still, since some of its services have not answered:
// until they have, or are told to be away by themselves.
func (k *keeper) lingers(sc *scope, now time.Time, first *sooner) bool {
	end := later(k.over, sc.named).Add(settle)
	if sc.old.IsZero() || !k.told || !now.Before(end) {
		return false
	}
	first.or(end)
	for s := range sc.ill {
		if s.shown == nil {
			return true
		}
	}
	for _, s := range sc.services {
		if s.shown == nil && !s.late && !s.right.IsZero() {
			return true
		}
	}
	return false
}

// outlast has those services of a place be away by themselves that have not answered since that was.
func (k *keeper) outlast(sc *scope) {
	for s := range sc.ill {
		if s.shown == nil {
			s.shown = s.trouble
			k.post(s.group, s)
		}
	}
	for _, s := range sc.services {
		if s.shown == nil && !s.right.IsZero() && len(s.items) > 0 {
			s.late = true
			k.post(s.group, s)
		}
	}
}

// reviewServices is about the services of a place that are in trouble by themselves.
func (k *keeper) reviewServices(sc *scope, covered bool, now time.Time, first *sooner) {
	if covered || sc.mute() != nil {
		return // those of which was told stay told
	}
	after := later(k.over, sc.named)
	for s := range sc.ill {
		if t := s.trouble; s.shown == nil && !k.ripe(t, false, after, now, first) || s.shown != nil && s.shown.text == t.text {
			continue
		}
		s.shown = s.trouble
		k.post(s.group, s)
	}
}

// has says that there is anything in use of a place.
func (sc *scope) has() bool {
	for _, list := range []map[string]*service{sc.services, sc.lost} {
		for _, s := range list {
			if len(s.items) > 0 {
				return true
			}
		}
	}
	return false
}

// part is what is told of parts of Consul, for the log.
type part struct {
	problem  *feed.Problem // the first
	services int
}

func (p *part) add(sc *scope) {
	for _, n := range []*notice{sc.awayNotice, sc.lostNotice} {
		if p.problem == nil && n.problem != nil {
			p.problem = n.problem
		}
	}
	var first *service
	for s := range sc.ill {
		if s.shown == nil {
			continue
		}
		p.services++
		if first == nil || s.group < first.group {
			first = s
		}
	}
	if p.problem == nil && first != nil {
		one := first.shown.problem(first.object, len(first.items) > 0)
		p.problem = &one
	}
}

// write writes into the log what is wrong, and that it is over.
func (k *keeper) write(told part, now time.Time, first *sooner) {
	text := k.stands.now.Error
	say, at := k.wholeLog.due(text, now)
	first.or(at)
	switch {
	case say && text != "":
		k.log.Warn("out of touch with Consul; what it said last stays", "error", text)
	case say:
		k.log.Info("in touch with Consul again")
	}
	text = ""
	if told.problem != nil {
		text = told.problem.Text
	}
	say, at = k.partLog.due(text, now)
	first.or(at)
	switch {
	case say && text != "":
		k.log.Warn("out of touch with a part of Consul; what it said last stays", "part", told.problem.Object, "error", text, "services", fmt.Sprint(told.services))
	case say:
		k.log.Info("in touch with all parts of Consul again")
	}
}
