package xds

import (
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/status"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/registry"
)

// refusalAge is how long a refused registration is a problem. Agents retry after 30s or sooner.
const refusalAge = 2 * time.Minute

// maxRefusals is how many registrations of one group are remembered as refused.
const maxRefusals = 8

// refusals are the registrations that were recently refused. The zero value is empty.
type refusals struct {
	mu  sync.Mutex
	all []refusal // guarded by mu
}

type refusal struct {
	key     registry.RegistrationKey
	problem feed.Problem // since the last try
}

// note records the result of a registration. An error is a problem until a try succeeds, or for
// refusalAge.
func (x *refusals) note(key registry.RegistrationKey, target *config.Object, err error, now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	ofGroup := 0
	x.all = slices.DeleteFunc(x.all, func(r refusal) bool {
		if r.key == key || now.Sub(r.problem.Since) > refusalAge {
			return true
		}
		if r.problem.Object == target.Key.String() {
			ofGroup++
		}
		return false
	})
	if err == nil || ofGroup >= maxRefusals {
		return
	}
	o := target.Origin
	x.all = append(x.all, refusal{key, feed.Problem{Severity: feed.Warning, Source: o.Source, File: o.File,
		Line: o.Line, Object: target.Key.String(), Since: now,
		Text: "registration refused: " + status.Convert(err).Message()}})
}

// problems are the recent refusals.
func (x *refusals) problems(now time.Time) []feed.Problem {
	x.mu.Lock()
	defer x.mu.Unlock()
	var out []feed.Problem
	for _, r := range x.all {
		if now.Sub(r.problem.Since) <= refusalAge {
			out = append(out, r.problem)
		}
	}
	feed.SortProblems(out)
	return out
}

// RefusedRegistrations are problems of the WorkloadGroups whose workloads this server refused.
func (s *Server) RefusedRegistrations() []feed.Problem { return s.refusals.problems(time.Now()) }
