package consul

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/registry"
)

// A Consul that was started with an empty data folder, after one with content, knows nothing, and says so as truth. It is
// told from one whose services were deregistered by this: they went all at once, while nobody looked. What was known stays
// then, each service until Consul knows it again, and is told to be missing.

// missing is how many names are told of those that are.
const missing = 5

// doubtful says that an answer may be that of a Consul which has lost its data: it is the first after one with content, and
// the index went back or Consul could not be asked in between.
func (v verdict) doubtful() bool { return v == restarted || v == returned }

// emptied says that a place where there were services has none of them any more, all at once.
func (k *keeper) emptied(sc *scope, there map[string]bool, v verdict) bool {
	if k.o.Emptied == emptiedBelieve || !v.doubtful() {
		return false
	}
	had := false
	for name, s := range sc.services {
		if len(s.items) == 0 {
			continue // its instances do not count: those that a mesh has registered come back first
		}
		if had = true; there[name] {
			return false
		}
	}
	return had
}

// doubt has what Consul says of a service, none of whose instances are there any more, wait until the names of all are known.
func (k *keeper) doubt(sc *scope, s *service, said converted) {
	s.pending = &said
	if !sc.doubted {
		sc.doubted = true
		sc.names.interrupt()
	}
}

// confirm believes what Consul says of services: their names are what they were.
func (k *keeper) confirm(sc *scope, at time.Time) {
	sc.doubted = false
	for _, s := range sc.services {
		if s.pending != nil {
			k.set(sc, s, *s.pending, at)
		}
	}
}

// lose keeps what is known of a service, although Consul does not know it any more.
func (k *keeper) lose(sc *scope, s *service) {
	s.cancel()
	s.pending = nil
	delete(sc.services, s.name)
	k.stands.well(sc.at.key(keyInstance + s.name))
	if len(s.items) > 0 {
		sc.lost[s.name] = s
	}
}

// find takes up what is kept of a service that Consul knows again.
func (sc *scope) find(s *service) {
	if old := sc.lost[s.name]; old != nil {
		s.known, s.said, s.items, s.problems, s.asOf = true, old.said, old.items, old.problems, old.asOf
		delete(sc.lost, s.name)
	}
}

// recall takes up what was kept of a place from before the start, where Consul has nothing at all. It is asked for the first
// time.
func (k *keeper) recall(sc *scope, there map[string]bool) {
	if k.o.Emptied == emptiedBelieve || len(there) > 0 {
		return
	}
	for _, u := range k.kept {
		name, ok := sc.at.service(u.Group)
		if !ok || !k.o.counts(name) || len(u.Items) == 0 {
			continue
		}
		s := newService(sc.at, name)
		s.known, s.items, s.problems, s.asOf = true, u.Items, u.Problems, u.AsOf
		sc.lost[name] = s
	}
}

// service is the name of the service that is called group among those of all places; false: it is of another place.
func (p place) service(group string) (string, bool) {
	name, ok := strings.CutPrefix(group, p.group(""))
	return name, ok && name != "" && !strings.Contains(name, "/")
}

// tellLost tells which services are missing, or that none are any more.
func (k *keeper) tellLost(sc *scope, at time.Time) {
	key := sc.at.key(keyLost)
	if len(sc.lost) == 0 {
		k.stands.well(key)
		return
	}
	names := slices.Sorted(maps.Keys(sc.lost))
	list := strings.Join(names[:min(len(names), missing)], ", ")
	if more := len(names) - missing; more > 0 {
		list += fmt.Sprintf(" and %d more", more)
	}
	k.stands.trouble(key, fmt.Sprintf("Consul at %s came back without the services that it had: %s; they stay as they were until they are registered again; "+
		"if they are gone for good, say so by the option emptied: believe", k.o.Address, list), at)
}

// Remember implements lastgood.Rememberer: kept is what the source said before the start. Call it before Run.
func (s *Source) Remember(kept []feed.Update[registry.Instances]) { s.kept = kept }
