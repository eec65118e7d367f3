package server

import (
	"context"
	"slices"
	"time"

	"github.com/ashore-mesh/ashore/internal/feed"
)

// problemLogGap is how often the problems of sources are compared with those that were logged.
const problemLogGap = time.Second

// problemLog logs each problem of a source once when it appears and once when it is over.
type problemLog struct {
	// problems lists the problems that there are now. After an error nothing is logged until it
	// succeeds again.
	problems func() ([]feed.Problem, error)
	report   func(appeared, gone []feed.Problem)
}

// run compares until ctx ends.
func (l *problemLog) run(ctx context.Context) error {
	tick := time.NewTicker(problemLogGap)
	defer tick.Stop()
	var logged []feed.Problem
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		now, err := l.problems()
		if err != nil {
			continue
		}
		appeared := without(now, logged)
		l.report(appeared, ended(without(logged, now), appeared))
		logged = now
	}
}

// ended returns the problems of gone that are over. A problem is not over if another one about the
// same field, or about the whole source, takes its place: such as that retained services were
// removed.
func ended(gone, appeared []feed.Problem) []feed.Problem {
	type place struct{ source, file, object, field string }
	replaced := map[place]bool{}
	for _, p := range appeared {
		replaced[place{p.Source, p.File, p.Object, p.Field}] = true
	}
	return slices.DeleteFunc(gone, func(p feed.Problem) bool {
		return replaced[place{p.Source, p.File, p.Object, p.Field}] || replaced[place{source: p.Source}]
	})
}

// without returns the problems of list that are not in other, each once.
func without(list, other []feed.Problem) (out []feed.Problem) {
	type id struct{ source, text string }
	seen := make(map[id]bool, len(other))
	for _, p := range other {
		seen[id{p.Source, p.String()}] = true
	}
	for _, p := range list {
		if at := (id{p.Source, p.String()}); !seen[at] {
			seen[at] = true
			out = append(out, p)
		}
	}
	return out
}
