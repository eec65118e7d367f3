package server

import (
	"context"
	"maps"
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
	var logged map[string]feed.Problem
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		problems, err := l.sources()
		if err != nil {
			continue
		}
		now := map[string]feed.Problem{}
		for _, p := range slices.Concat(problems, l.analyzed()) {
			id := p // without its line, which an edit above it changes
			id.Line = 0
			now[p.Source+" "+id.String()] = p
		}
		l.write(now, logged, hclog.Warn, "configuration problem")
		l.write(logged, now, hclog.Info, "configuration problem is over")
		logged = now
	}
}

// write logs the problems of one list that are not in another, and the number of those that are too
// many.
func (l *problemLog) write(list, other map[string]feed.Problem, level hclog.Level, message string) {
	n := 0
	for _, id := range slices.Sorted(maps.Keys(list)) {
		if _, known := other[id]; known {
			continue
		}
		if n++; n <= maxLogged {
			l.log.Log(level, message, "problem", list[id].String(), "source", list[id].Source)
		}
	}
	if n > maxLogged {
		l.log.Log(level, message+": more than are logged one by one; \"ashorectl problems\" lists all", "problems",
			n-maxLogged)
	}
}
