package xds

import (
	"maps"
	"net/netip"
	"sync"
	"time"

	"google.golang.org/grpc/status"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
)

// refusalAge is how long a refused registration is a problem. Agents retry after 30s or sooner.
const refusalAge = 2 * time.Minute

// maxRefusals bounds the addresses of one group that are remembered as refused.
const maxRefusals = 8

// refusals are the addresses that workloads were recently refused. The zero value is empty.
type refusals struct {
	mu  sync.Mutex
	all map[refusedAddress]refusal // guarded by mu
}

// refusedAddress is an address of a WorkloadGroup or WorkloadEntry.
type refusedAddress struct {
	target  config.Key
	address netip.Addr
}

type refusal struct {
	problem feed.Problem
	at      time.Time // of the last try
}

// note records the result of a registration. An error is a problem until the address is registered,
// or for refusalAge.
func (x *refusals) note(target *config.Object, address netip.Addr, err error, now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.expire(now)
	key := refusedAddress{target.Key, address}
	since := now
	if old, ok := x.all[key]; ok {
		since = old.problem.Since
		delete(x.all, key)
	}
	ofTarget := 0
	for k := range x.all {
		if k.target == target.Key {
			ofTarget++
		}
	}
	if err == nil || ofTarget >= maxRefusals {
		return
	}
	if x.all == nil {
		x.all = map[refusedAddress]refusal{}
	}
	o := target.Origin
	x.all[key] = refusal{at: now, problem: feed.Problem{Severity: feed.Warning, Source: o.Source, File: o.File,
		Line: o.Line, Object: target.Key.String(), Since: since,
		Text: "registration refused: " + status.Convert(err).Message()}}
}

// expire forgets old refusals. Called with mu held.
func (x *refusals) expire(now time.Time) {
	maps.DeleteFunc(x.all, func(_ refusedAddress, r refusal) bool { return now.Sub(r.at) > refusalAge })
}

// problems are the recent refusals.
func (x *refusals) problems(now time.Time) []feed.Problem {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.expire(now)
	var out []feed.Problem
	for _, r := range x.all {
		out = append(out, r.problem)
	}
	feed.SortProblems(out)
	return out
}

// RefusedRegistrations are problems of the WorkloadGroups whose workloads this server refused.
func (s *Server) RefusedRegistrations() []feed.Problem { return s.refusals.problems(time.Now()) }
