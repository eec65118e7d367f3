package main

import (
	"context"
	"time"

	"github.com/ashore-mesh/ashore/internal/feed"
)

// problemLogGap is how often the problems of sources are compared with those that were logged.
const problemLogGap = time.Second

// problemLog logs each problem of a source when it appears and when it is over.
type problemLog struct {
	backend *backend
	report  func(appeared, gone []feed.Problem)
}

// run compares until ctx ends.
func (l *problemLog) run(ctx context.Context) error {
	tick := time.NewTicker(problemLogGap)
	defer tick.Stop()
	logged := map[string]feed.Problem{}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		now := map[string]feed.Problem{}
		var appeared, gone []feed.Problem
		for _, p := range l.backend.sourceProblems() {
			id := p.Source + " " + p.String()
			if _, known := logged[id]; !known {
				appeared = append(appeared, p)
			}
			now[id] = p
		}
		for id, p := range logged {
			if _, still := now[id]; !still {
				gone = append(gone, p)
			}
		}
		l.report(appeared, gone)
		logged = now
	}
}
