package pace

import (
	"sync"
	"time"
)

const (
	// burst is how often one actor may at once, and every is how long it then takes until it may again.
	burst, every = 50, 10 * time.Second
	// maxActors bounds the actors that are remembered; when there are more, all are forgotten.
	maxActors = 4096
)

// Actors are those who are bounded, each by itself: 50 times at once, and once in 10 seconds after that. The zero value
// knows nobody. Safe for concurrent use.
type Actors struct {
	mu     sync.Mutex
	actors map[string]*paced // guarded by mu
}

// paced is what is known of one actor.
type paced struct {
	left    int       // how often it may at once
	since   time.Time // when left last grew
	refused int       // how often it might not, since it last might
}

// Take says whether an actor may once more, and how often before it might not.
func (p *Actors) Take(actor string, now time.Time) (may bool, refused int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	a := p.actors[actor]
	if a == nil {
		if p.actors == nil || len(p.actors) >= maxActors {
			p.actors = map[string]*paced{}
		}
		a = &paced{left: burst, since: now}
		p.actors[actor] = a
	}
	if n := int(now.Sub(a.since) / every); n > 0 {
		a.left, a.since = min(burst, a.left+n), a.since.Add(time.Duration(n)*every)
	}
	if a.left == 0 {
		a.refused++
		return false, 0
	}
	a.left--
	refused, a.refused = a.refused, 0
	return true, refused
}
