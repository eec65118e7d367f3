package xds

import (
	"net/netip"
	"slices"
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
	all []refusal // guarded by mu
}

// refusal is that of one address of one WorkloadGroup or WorkloadEntry.
type refusal struct {
	target    *config.Object
	address   netip.Addr
	text      string
	first, at time.Time
}

// note records the result of a registration. An error is a problem until the address is registered,
// or for refusalAge.
func (x *refusals) note(target *config.Object, address netip.Addr, err error, now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	first, others := now, 0
	x.all = slices.DeleteFunc(x.all, func(r refusal) bool {
		same := r.target.Key == target.Key
		if same && r.address == address {
			first = r.first
			return true
		}
		old := now.Sub(r.at) > refusalAge
		if same && !old {
			others++
		}
		return old
	})
	if err != nil && others < maxRefusals {
		x.all = append(x.all, refusal{target, address, status.Convert(err).Message(), first, now})
	}
}

// problems are the recent refusals.
func (x *refusals) problems(now time.Time) []feed.Problem {
	x.mu.Lock()
	defer x.mu.Unlock()
	var out []feed.Problem
	for _, r := range x.all {
		if now.Sub(r.at) > refusalAge {
			continue
		}
		origin := r.target.Origin
		out = append(out, feed.Problem{
			Severity: feed.Warning, Source: origin.Source, File: origin.File, Line: origin.Line,
			Object: r.target.Key.String(), Since: r.first, Text: "registration refused: " + r.text,
		})
	}
	feed.SortProblems(out)
	return out
}

// RefusedRegistrations are problems of the WorkloadGroups whose workloads this server refused.
func (s *Server) RefusedRegistrations() []feed.Problem { return s.refusals.problems(time.Now()) }
