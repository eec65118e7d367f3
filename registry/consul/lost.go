package consul

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/registry"
)

// A Consul that was started with an empty data folder, after one with content, knows nothing, and says so as truth; moments
// later it knows what the first agents have registered again. It is told from one whose services were deregistered by this: it
// counts anew, or they went all at once, while nobody looked. What was known stays then, each service until Consul knows it
// again, and is told to be missing.

// missing is how many names are told of those that are.
const missing = 5

// doubtful says that an answer may be that of a Consul which has lost its data: it is the first after one with content, and
// the index went back or Consul could not be asked in between.
func (v verdict) doubtful() bool { return v == restarted || v == returned }

// emptied says that services which are missing at a place are lost, rather than gone: Consul counts anew, or none that there
// was is there any more, all at once.
func (k *keeper) emptied(sc *scope, there map[string]bool, v verdict) bool {
	if k.o.Emptied == emptiedBelieve || !v.doubtful() {
		return false
	}
	had := false
	for name, s := range sc.services {
		if len(s.items) == 0 {
			continue // its instances do not count: those that a mesh has registered come back first
		}
		if had = true; there[name] && v != restarted {
			return false
		}
	}
	return had
}

// doubt has what Consul says of a service, none of whose instances are there any more, wait until the names of all are known. What
// stays until then is as old as it was.
func (k *keeper) doubt(sc *scope, s *service, said converted) {
	if s.pending == nil {
		s.doubted = time.Now()
	}
	switch s.pending = &said; {
	case s.late:
	case !s.right.IsZero():
		k.lags(s, s.right)
	case s.shown != nil:
		k.lags(s, s.shown.since)
	case !sc.old.IsZero():
		k.lags(s, sc.old)
	}
	if !sc.doubted {
		sc.doubted = true
		sc.names.interrupt()
	}
}

// confirm takes in that the names of all services are what they were.
func (k *keeper) confirm(sc *scope, a answer) {
	sc.doubted, sc.answered = false, time.Now()
	for _, s := range sc.services {
		sc.resolve(s, a)
	}
}

// resolve has a service of which something is doubted asked for once more, and that is believed, when the names of all services have
// it: what was doubted may be older than they are, and Consul may know its instances again. Where the names are the older ones, they
// are asked for once more. The goroutine of keeper.loop calls it.
func (sc *scope) resolve(s *service, names answer) {
	switch {
	case s.pending == nil:
	case !names.asked.After(s.doubted):
		sc.doubted = true
		sc.names.interrupt()
	default:
		s.pending = nil
		s.askAnew()
	}
}

// denied says that Consul was asked for each service of a place by name, and has none, which no token hides. Where it has some, which the
// token hides, those that it has none of are absent. The names that a is the answer about are hidden; v is what their index says.
func (k *keeper) denied(ctx context.Context, sc *scope, a answer, v verdict) bool {
	had, left, done := 0, 0, make(chan struct{})
	k.tell(ctx, func() {
		defer close(done)
		for _, s := range sc.services {
			if len(s.items) > 0 {
				had++
			}
			if len(s.items) > 0 && s.pending == nil {
				left++
			}
		}
		if left > 0 {
			k.leaveHidden(sc, a, v)
		}
	})
	select {
	case <-ctx.Done():
		return false
	case <-done:
		return had > 0 && left == 0
	}
}

// leaveHidden takes in which services are not there any more when the token hides the names of all: those of which Consul has none by
// their own answer, when it said of another one since that it is hidden, and so there.
func (k *keeper) leaveHidden(sc *scope, a answer, v verdict) {
	there, last := map[string]bool{}, time.Time{}
	for name, s := range sc.services {
		if s.pending == nil && !s.hidden.IsZero() {
			there[name], last = true, later(last, s.hidden)
		}
	}
	emptied := k.emptied(sc, there, v)
	for _, s := range sc.services {
		if s.pending == nil || !a.asked.After(s.doubted) || !last.After(s.doubted) {
			continue
		}
		if emptied && s.missed.IsZero() {
			s.missed = sc.namesSince(a)
		}
		k.absent(sc, s, a.at)
	}
}

// lags has what is in use of a service be of since until it has answered, whatever its place does.
func (k *keeper) lags(s *service, since time.Time) {
	s.right, s.late = since, true
	k.post(s.group, s)
}

// absent takes in that Consul has no service of this name, which no token hides: it is gone, or it is lost.
func (k *keeper) absent(sc *scope, s *service, at time.Time) {
	if len(s.items) == 0 || s.missed.IsZero() {
		k.gone(sc, s, at)
		return
	}
	since := s.missed
	if !s.right.IsZero() && s.right.Before(since) {
		since = s.right
	}
	s.cancel()
	s.pending, s.unlisted = nil, false
	k.mended(sc, s)
	delete(sc.services, s.name)
	k.miss(sc, s, since)
}

// miss has a service be among those that are missing; its content is of since.
func (k *keeper) miss(sc *scope, s *service, since time.Time) {
	s.within, s.right, s.missed, s.late = sc.lostNotice.group, since, time.Time{}, false
	s.lost, sc.lost[s.name] = true, s
	sc.loses(since)
	k.dirty = true
	k.post(s.group, s)
}

// loses notes that something is lost since then.
func (sc *scope) loses(since time.Time) {
	sc.lostElse = true
	if sc.lostSince.IsZero() || since.Before(sc.lostSince) {
		sc.lostSince = since
	}
}

// find takes up what is kept of a service that Consul knows again. It is as old as it was until the service has answered.
func (k *keeper) find(sc *scope, s *service) {
	old := sc.lost[s.name]
	if old == nil {
		return
	}
	s.known, s.heard, s.said, s.items, s.problems, s.asOf, s.right = k.told, old.heard, old.said, old.items, old.problems, old.asOf, old.right
	delete(sc.lost, s.name)
	s.late = !s.right.IsZero()
	k.post(s.group, s)
}

// forget lets go of a service that nobody asks for: it is gone.
func (k *keeper) forget(sc *scope, s *service, at time.Time) {
	delete(sc.lost, s.name)
	sc.claim(s, s.said, converted{})
	s.items, s.problems, s.shown = nil, nil, nil
	k.note(s, at)
}

// standIn has what was kept of a place stand in for what Consul does not tell of it for trouble t.
func (k *keeper) standIn(sc *scope, t *trouble) {
	if k.kept == nil || sc.stoodIn {
		return
	}
	sc.stoodIn = true
	last := k.bring(sc)
	if !last.IsZero() && last.Before(t.since) {
		t.since = last
	}
}

// bring has what was kept of a place be among what is lost. It returns of when the newest of it is.
func (k *keeper) bring(sc *scope) (last time.Time) {
	for _, u := range k.kept {
		name, ok := sc.at.service(u.Group)
		if !ok || !k.o.counts(name) || len(u.Items) == 0 && len(u.Problems) == 0 {
			continue
		}
		s := sc.newService(name)
		s.take(u)
		if u.Within == sc.lostNotice.group {
			s.within = u.Within
			sc.loses(s.right)
		}
		sc.lost[name] = s
		last = later(last, s.right)
	}
	return last
}

// take has what was kept of a service stand in for what Consul says.
func (s *service) take(u feed.Update[registry.Instances]) {
	s.known, s.items, s.problems, s.asOf, s.right = true, u.Items, u.Problems, u.AsOf, u.Away
}

// substitute has what was kept of a service, if anything was, stand in for what Consul does not tell of it alone.
func (k *keeper) substitute(s *service) {
	switch u, ok := k.kept[s.group]; {
	case len(s.items) > 0: // it was found
		s.known = true
	case k.kept == nil:
	case ok:
		s.take(u)
	default: // there was none
		s.known = true
	}
}

// recall decides on what was kept of a place from before the start and is not there, when it is asked for the first time: it is
// missing where Consul has nothing at all, or counts anew, or was missing before; it is to be asked for where the token may hide it; and else
// it is gone.
func (k *keeper) recall(sc *scope, there map[string]bool, a answer, v verdict) (hidden []*service) {
	if !sc.stoodIn {
		k.bring(sc)
	}
	all := len(there) == 0 || v == restarted
	for name, s := range maps.Clone(sc.lost) {
		switch {
		case there[name] && sc.stoodIn: // it is found
		case there[name]:
			delete(sc.lost, name) // its answer comes first
		case k.o.Emptied == emptiedBelieve:
			k.forget(sc, s, a.at)
		case a.filtered:
			delete(sc.lost, name)
			k.suspect(sc, s, all)
			hidden = append(hidden, s)
		case all || s.within == sc.lostNotice.group:
			k.miss(sc, s, s.right)
		default:
			k.forget(sc, s, a.at)
		}
	}
	return hidden
}

// suspect has what was kept of a service be that of one that the token may hide: its answer says so. Else it is lost where all are
// missing, or it was before, and gone where not.
func (k *keeper) suspect(sc *scope, s *service, all bool) {
	if all || s.within == sc.lostNotice.group {
		s.missed = s.right
	}
	s.unlisted, s.known, s.within, s.late = true, k.told, sc.awayNotice.group, !s.right.IsZero()
	k.post(s.group, s)
}

// service is the name of the service that is called group among those of all places; false: it is of another place.
func (p place) service(group string) (string, bool) {
	name, ok := strings.CutPrefix(group, p.group(""))
	if !ok || name == "" || strings.Contains(name, "/") {
		return "", false
	}
	name, err := url.PathUnescape(name)
	return name, err == nil
}

// tellLost tells which services are missing, or that none are any more.
func (k *keeper) tellLost(sc *scope) {
	sc.lostElse = false
	var names []string
	for name, s := range sc.lost {
		if s.within == sc.lostNotice.group {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		sc.lostSince = time.Time{}
		k.notify(sc.lostNotice, nil, time.Time{})
		return
	}
	slices.Sort(names)
	list := strings.Join(names[:min(len(names), missing)], ", ")
	if more := len(names) - missing; more > 0 {
		list += fmt.Sprintf(" and %d more", more)
	}
	text := fmt.Sprintf("Consul at %s came back without the services that it had: %s; they stay as they were until they are registered again; "+
		"if they are gone for good, say so by the option emptied: believe", k.o.Address, list)
	if sc.unchosen.excludes(names) {
		text = fmt.Sprintf("%s: those that counted before stay as they were: %s; mend that, or if they are not to count any more, say so by the option emptied: believe",
			sc.unchosen.text(k.o.Address), list)
	}
	k.notify(sc.lostNotice, &feed.Problem{Severity: feed.Warning, Object: sc.at.title(), Stale: true, Since: sc.lostSince, Text: text}, sc.lostSince)
}

// Remember implements lastgood.Rememberer: kept is what the source said before the start, and Away of when it is. Call it before
// Run, and not when nothing complete was kept.
func (s *Source) Remember(kept []feed.Update[registry.Instances]) {
	s.kept = make(map[string]feed.Update[registry.Instances], len(kept))
	for _, u := range kept {
		s.kept[u.Group] = u
	}
}
