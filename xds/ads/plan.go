package ads

import (
	"iter"
	"slices"
	"time"

	"github.com/ashore-mesh/ashore/xds/resource"
)

// plan is what the next response says: a shared difference, used whole, and what is this client's
// alone.
type plan struct {
	shared  *diff
	changed []*resource.Resource
	removed []string
	kept    []string // removals that wait
	lagging []string // changes that wait
	settled []string // exceptions that end without a word
}

// changes is how many resources it sends.
func (p *plan) changes() int {
	n := len(p.changed)
	if p.shared != nil {
		n += len(p.shared.changed)
	}
	return n
}

// removals is how many names it removes.
func (p *plan) removals() int {
	n := len(p.removed)
	if p.shared != nil {
		n += len(p.shared.removed)
	}
	return n
}

// sent yields the resources that it sends.
func (p *plan) sent() iter.Seq[*resource.Resource] {
	return func(yield func(*resource.Resource) bool) { eachSent(p.shared, p.changed, yield) }
}

// all yields every name that it speaks of.
func (p *plan) all() iter.Seq[string] {
	return func(yield func(string) bool) { eachName(p.shared, p.changed, p.removed, yield) }
}

func eachSent(shared *diff, changed []*resource.Resource, yield func(*resource.Resource) bool) bool {
	if shared != nil {
		for _, r := range shared.changed {
			if !yield(r) {
				return false
			}
		}
	}
	for _, r := range changed {
		if !yield(r) {
			return false
		}
	}
	return true
}

func eachName(shared *diff, changed []*resource.Resource, removed []string, yield func(string) bool) {
	if !eachSent(shared, changed, func(r *resource.Resource) bool { return yield(r.Name) }) {
		return
	}
	if shared != nil {
		for _, name := range shared.removed {
			if !yield(name) {
				return
			}
		}
	}
	for _, name := range removed {
		if !yield(name) {
			return
		}
	}
}

// planner makes a plan: it starts from the shared difference and corrects it name by name.
type planner struct {
	shared *diff
	drop   map[string]struct{} // names of which shared is not to be sent
	plan
	tainted []*resource.Resource // to be sent if anything is
}

// plan computes what leads the client to to.
func (s *Subscription) plan(to resource.Set, w Waits) *plan {
	pl := planner{shared: s.cache.diff(diffKey{s.have.Shared, to.Shared, s.known, s.names, s.kind})}
	s.planOwn(&pl, to, w)
	s.planShared(&pl, w)
	s.planExceptions(&pl, to, w)
	p := pl.finish()
	if len(pl.tainted) > 0 && !s.silent(p) {
		p.changed = append(p.changed, pl.tainted...)
	}
	return p
}

// planShared takes out of the shared difference what waits.
func (s *Subscription) planShared(pl *planner, w Waits) {
	if pl.shared == nil {
		return
	}
	for _, name := range pl.shared.gone {
		if s.exceptions[name] == nil && !pl.dropped(name) && w.removal(name) {
			pl.keep(name)
		}
	}
	if w.Change == nil {
		return
	}
	for _, r := range pl.shared.changed {
		if s.exceptions[r.Name] == nil && !pl.dropped(r.Name) && w.change(s.had(r.Name), r) {
			pl.lag(r.Name)
		}
	}
}

// planOwn corrects the names that stand in the client's own layers.
func (s *Subscription) planOwn(pl *planner, to resource.Set, w Waits) {
	if s.have.Own == to.Own && s.known == s.names && pl.shared.empty() {
		return
	}
	for name := range eitherName(s.have.Own, to.Own) {
		if s.exceptions[name] != nil || !s.names.Covers(name) {
			continue
		}
		had, next := s.had(name), to.Get(name)
		if had != nil && next == nil && w.removal(name) {
			pl.keep(name)
			continue
		}
		if had == nil && next == nil && !s.names.Has(name) {
			pl.say(name, nil, false)
			continue
		}
		var one diff
		one.add(s.kind, name, s.known.Covers(name), had, next)
		r, removed := one.find(name)
		if r != nil && r == next && w.change(had, r) {
			pl.lag(name)
			continue
		}
		pl.say(name, r, removed)
	}
}

// planExceptions corrects the names for which the client does not have what its set says.
func (s *Subscription) planExceptions(pl *planner, to resource.Set, w Waits) {
	for _, name := range s.exceptional() {
		e, next := s.exceptions[name], to.Get(name)
		switch {
		case e.standing == queued,
			e.standing == refused && next != nil && next.Version() == e.version:
			pl.say(name, nil, false)
		case s.kind.Single && s.states && e.standing == refused && next == nil: // it cannot be told
			pl.say(name, nil, false)
		case e.standing == tainted && next != nil && (s.had(name) == nil || same(s.had(name), next)):
			pl.say(name, nil, false)
			pl.tainted = append(pl.tainted, next)
		case next != nil && w.change(e.old, next):
			pl.lag(name)
		case next != nil:
			pl.say(name, next, false)
		case (e.standing == kept || e.old != nil || e.claimed) && w.removal(name):
			pl.keep(name)
		case s.kind.Empty != nil && s.names.Has(name):
			pl.say(name, s.kind.Empty(name), false)
		case s.names.Has(name) || e.standing != refused || !e.oldKnown || e.old != nil || e.unsure:
			pl.say(name, nil, true)
		default: // refused, never had, and gone: the client knows nothing of it
			pl.say(name, nil, false)
			pl.settled = append(pl.settled, name)
		}
	}
}

// say sets what the plan says of name: to send r, to remove it, or nothing.
func (pl *planner) say(name string, r *resource.Resource, removed bool) {
	was, wasRemoved := pl.shared.find(name)
	if wasRemoved == removed && (was == r || was != nil && r != nil && was.Version() == r.Version()) {
		return
	}
	if was != nil || wasRemoved {
		if pl.drop == nil {
			pl.drop = map[string]struct{}{}
		}
		pl.drop[name] = struct{}{}
	}
	switch {
	case r != nil:
		pl.changed = append(pl.changed, r)
	case removed:
		pl.removed = append(pl.removed, name)
	}
}

// keep says nothing of name, whose removal waits.
func (pl *planner) keep(name string) {
	pl.say(name, nil, false)
	pl.kept = append(pl.kept, name)
}

// lag says nothing of name, whose change waits.
func (pl *planner) lag(name string) {
	pl.say(name, nil, false)
	pl.lagging = append(pl.lagging, name)
}

// dropped says whether say overruled the shared difference for name.
func (pl *planner) dropped(name string) bool {
	_, ok := pl.drop[name]
	return ok
}

// finish returns the plan. Where the shared difference is used whole it stays shared, encoding
// included.
func (pl *planner) finish() *plan {
	p := &pl.plan
	switch {
	case pl.shared.empty():
	case len(pl.drop) == 0:
		p.shared = pl.shared
	default:
		for _, r := range pl.shared.changed {
			if !pl.dropped(r.Name) {
				p.changed = append(p.changed, r)
			}
		}
		for _, name := range pl.shared.removed {
			if !pl.dropped(name) {
				p.removed = append(p.removed, name)
			}
		}
	}
	return p
}

// eitherName yields every name of a or b once.
func eitherName(a, b *resource.Layer) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, r := range a.Items() {
			if !yield(r.Name) {
				return
			}
		}
		if a == b {
			return
		}
		for _, r := range b.Items() {
			if a.Get(r.Name) == nil && !yield(r.Name) {
				return
			}
		}
	}
}

// flight is a response that is not acknowledged yet.
type flight struct {
	number  uint64
	shared  *diff
	changed []*resource.Resource
	removed []string
	apart   bool // it repeats a part of a rejected response
	mixed   bool // it held what earlier responses on their way brought too
	spoilt  bool // it held, for want of anything better, what the client may reject

	from, to resource.Set // what the client had before, and has after
	known    *Names       // what from holds for
	olds     map[string]*exception
	at       time.Time
}

// all yields every name that it speaks of.
func (f *flight) all() iter.Seq[string] {
	return func(yield func(string) bool) { eachName(f.shared, f.changed, f.removed, yield) }
}

// count is how many names it speaks of.
func (f *flight) count() int {
	n := len(f.changed) + len(f.removed)
	if f.shared != nil {
		n += len(f.shared.changed) + len(f.shared.removed)
	}
	return n
}

// holds says whether it speaks of name.
func (f *flight) holds(name string) bool {
	if r, removed := f.shared.find(name); r != nil || removed {
		return true
	}
	return slices.ContainsFunc(f.changed, func(r *resource.Resource) bool { return r.Name == name }) ||
		slices.Contains(f.removed, name)
}

// keep remembers an exception that the response ends, in case that it is rejected.
func (f *flight) keep(name string, e *exception) {
	if f.olds == nil {
		f.olds = map[string]*exception{}
	}
	f.olds[name] = e
}
