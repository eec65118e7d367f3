package main

import (
	"context"
	"time"

	"github.com/hashicorp/go-hclog"
)

const (
	// patienceFirst is how long a start may take before the log tells what it waits for, and
	// patienceEvery how often it does from then on.
	patienceFirst = 10 * time.Second
	patienceEvery = time.Minute
)

// patience tells in the log what a start waits for that takes long.
type patience struct {
	// waiting names what proxies still wait for; empty when they are served.
	waiting func() []string
	log     hclog.Logger
}

// run tells until proxies are served, or ctx ends.
func (p *patience) run(ctx context.Context) error {
	for after := patienceFirst; ; after = patienceEvery {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(after):
		}
		waiting := p.waiting()
		if len(waiting) == 0 {
			<-ctx.Done()
			return nil
		}
		p.log.Warn("proxies are not served yet: \"ashorectl sources\" says why", "waiting_for", waiting)
	}
}
