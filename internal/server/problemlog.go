package server

import (
	"context"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/internal/feed"
)

const (
	// problemLogGap is how often problems are compared with those that were logged.
	problemLogGap = time.Second
	// maxLogged is how many problems that appear, or end, at once are logged one by one.
	maxLogged = 50
)

// problemLog logs each problem of the configuration once when it appears and once when it is over.
type problemLog struct {
	// sources lists the problems of sources. After an error nothing is logged until it succeeds
	// again.
	sources  func() ([]feed.Problem, error)
	analyzed func() []feed.Problem // those of the whole configuration
	log      hclog.Logger
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
		now, err := l.sources()
		if err != nil {
			continue
		}
		now = slices.Concat(now, l.analyzed())
		l.write(without(now, logged), hclog.Warn, "configuration problem")
		l.write(without(logged, now), hclog.Info, "configuration problem is over")
		logged = now
	}
}

// write logs a list of problems, and the number of those that are too many.
func (l *problemLog) write(list []feed.Problem, level hclog.Level, message string) {
	for _, p := range list[:min(len(list), maxLogged)] {
		l.log.Log(level, message, "problem", p.String(), "source", p.Source)
	}
	if n := len(list) - maxLogged; n > 0 {
		l.log.Log(level, message+": more than are logged one by one; \"ashorectl problems\" lists all", "problems", n)
	}
}

// without returns the problems of list that are not in other, each once. Their lines do not count.
func without(list, other []feed.Problem) (out []feed.Problem) {
	id := func(p feed.Problem) string {
		p.Line = 0
		return p.Source + " " + p.String()
	}
	seen := make(map[string]bool, len(other))
	for _, p := range other {
		seen[id(p)] = true
	}
	for _, p := range list {
		if !seen[id(p)] {
			seen[id(p)] = true
			out = append(out, p)
		}
	}
	return out
}
