package audit

import (
	"sync"
	"time"
)

const (
	// paceBurst is how many events of one actor are recorded at once, and paceEvery how often another one is: old lines of
	// the log make room for new ones, and nobody shall drive them out.
	paceBurst, paceEvery = 50, 10 * time.Second
	// maxActors bounds the actors that are remembered; when there are more, all are forgotten.
	maxActors = 4096
)

// Pace bounds what actors may have recorded who can cause an event as often as they like. The zero value knows nobody.
// Safe for concurrent use.
type Pace struct {
	mu     sync.Mutex
	actors map[string]*paced // guarded by mu
}

// paced is what is known of one actor.
type paced struct {
	left   int       // how many may be recorded at once
	since  time.Time // when left last grew
	silent int       // how many were not recorded
}

// Take says whether an event of an actor is to be recorded, and how many before it were not.
func (p *Pace) Take(actor string, now time.Time) (record bool, silent int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	a := p.actors[actor]
	if a == nil {
		if p.actors == nil || len(p.actors) >= maxActors {
			p.actors = map[string]*paced{}
		}
		a = &paced{left: paceBurst, since: now}
		p.actors[actor] = a
	}
	if n := int(now.Sub(a.since) / paceEvery); n > 0 {
		a.left, a.since = min(paceBurst, a.left+n), a.since.Add(time.Duration(n)*paceEvery)
	}
	if a.left == 0 {
		a.silent++
		return false, 0
	}
	a.left--
	silent, a.silent = a.silent, 0
	return true, silent
}
