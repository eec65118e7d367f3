package consul

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/ashore-mesh/ashore/internal/feed"
)

// What is known of each place, and of each service, stands by itself: it may be away while the rest is in touch. A trouble of one
// service is told with its group. A trouble of a place is told once, by a group of the place that its services are within (a
// notice). What holds for all places is the Standing of the source, and nothing else is.

// trouble is why something cannot be asked for.
type trouble struct {
	text string
	// since is of when that is what is known of it.
	since time.Time
	// noticed is when it was first told of here.
	noticed time.Time
	// answered says that it is what Consul answers to the question, and that it is asked as it should be.
	answered bool
	// silent says that nobody answered in time.
	silent bool
	// ofFilter says that Consul does not understand the option filter: no question about any service can be asked.
	ofFilter bool
}

// settle is how long a trouble of a part has lasted before it is told: until then it may turn out to be one of all, or to be over
// with that.
const settle = 3 * time.Second

// settled is the time at which a trouble is to be told that stands by itself since after.
func (t *trouble) settled(after time.Time) time.Time {
	if t.noticed.After(after) {
		after = t.noticed
	}
	return after.Add(settle)
}

// again is the trouble as it is told of once more: it began when it did.
func (t *trouble) again(next trouble) *trouble {
	if t != nil {
		next.noticed = t.noticed
		if t.since.Before(next.since) {
			next.since = t.since
		}
	}
	return &next
}

// problem is a trouble with an object, of which something is in use, or nothing is known.
func (t *trouble) problem(object string, inUse bool) feed.Problem {
	return feed.Problem{Severity: feed.Warning, Object: object, Text: t.text, Stale: inUse, Since: t.since}
}

// What is asked for of a place besides its services, the more general first.
const (
	askNames    = "the names of all services"
	askCritical = "the checks that are critical"
	askWarning  = "the checks that are warning"
	askRestored = "whether its state was restored"
)

// heardOf takes in that something of a place cannot be asked for; nil: it can.
func (k *keeper) heardOf(sc *scope, what string, t *trouble) {
	k.dirty = true
	if t == nil {
		delete(sc.troubles, what)
		if what == askNames || what == askBeat {
			sc.named = time.Now()
		}
		return
	}
	if (what == askCritical || what == askWarning) && !k.slots.isCrowded() {
		return // of a query that was still out when the last one was needed
	}
	sc.troubles[what] = sc.troubles[what].again(*t)
	if (what == askNames || what == askBeat) && !sc.listed {
		k.standIn(sc, sc.troubles[what])
	}
}

// away is why what is known of a place may be old; nil: it is not.
func (sc *scope) away() *trouble { return sc.worst(askBeat, askNames, askCritical, askWarning) }

// fails takes in that a service cannot be asked for; nil: it can.
func (k *keeper) fails(sc *scope, s *service, t *trouble) {
	if sc.services[s.name] != s {
		return // it has gone meanwhile
	}
	k.filtersWrongly(t)
	if t == nil {
		k.stirred = true
		k.mended(sc, s)
		return
	}
	was, known := s.trouble, s.known
	if !s.known {
		k.substitute(s)
	}
	if !s.right.IsZero() && s.right.Before(t.since) {
		t.since = s.right
	}
	s.trouble = s.trouble.again(*t)
	sc.ill[s] = true
	k.excuse(sc, s)
	if was == nil || was.text != s.trouble.text || !was.since.Equal(s.trouble.since) || s.known != known {
		k.stirred = true // else there is nothing new to decide on, however many fail again and again
	}
}

// filtersWrongly takes in whether the trouble of one service is one of all, for the filter that all are asked for with.
func (k *keeper) filtersWrongly(t *trouble) {
	was := k.misfilter
	if k.misfilter = nil; t != nil && t.ofFilter {
		k.misfilter = was.again(*t)
	}
	k.stirred = k.stirred || (was == nil) != (k.misfilter == nil)
}

// mended takes in that nothing is wrong with a service any more.
func (k *keeper) mended(sc *scope, s *service) {
	s.trouble = nil
	delete(sc.ill, s)
	if s.shown != nil {
		s.shown = nil
		k.post(s.group, s)
	}
}

// whole is the trouble of all that there is; nil: there is none. Before the first full batch it is whatever keeps that from being
// complete.
func (k *keeper) whole() *trouble {
	if !k.placed {
		return k.unplaced
	}
	if k.misfilter != nil {
		return k.misfilter
	}
	all := k.ordered()
	var first *trouble
	for i, sc := range all {
		t := sc.mute()
		if t == nil {
			first = nil
			break
		}
		if i == 0 {
			first = t
		} else if t.since.After(first.since) { // until then some of it was in touch
			first.since = t.since
		}
	}
	if first != nil || k.told || k.kept != nil {
		return first
	}
	for _, sc := range all {
		if t := sc.mute(); t != nil {
			return t
		}
	}
	return k.missing(all)
}

// missing is why the first service is not known that keeps the first full batch from being complete. It is the same one for as
// long as it is missing.
func (k *keeper) missing(all []*scope) *trouble {
	if k.culprit != nil && !k.culprit.known && k.culprit.trouble != nil {
		return k.culprit.trouble
	}
	k.culprit = nil
	for _, sc := range all {
		for s := range sc.ill {
			if !s.known && (k.culprit == nil || s.group < k.culprit.group) {
				k.culprit = s
			}
		}
	}
	if k.culprit == nil {
		return nil
	}
	return k.culprit.trouble
}

// ordered are the places in the order of their groups.
func (k *keeper) ordered() []*scope {
	out := make([]*scope, 0, len(k.scopes))
	for _, sc := range k.scopes {
		out = append(out, sc)
	}
	slices.SortFunc(out, func(a, b *scope) int { return cmp.Compare(a.at.group(""), b.at.group("")) })
	return out
}

// title names a place for people.
func (p place) title() string {
	var parts []string
	for _, one := range []struct{ what, name string }{{"datacenter", p.Datacenter}, {"partition", p.Partition}, {"namespace", p.Namespace}} {
		if one.name != "" {
			parts = append(parts, one.what+" "+one.name)
		}
	}
	if p.Datacenter == "" {
		parts = slices.Insert(parts, 0, "the agent's datacenter")
	}
	return "Consul, " + strings.Join(parts, ", ")
}
