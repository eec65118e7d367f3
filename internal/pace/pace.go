package pace

import (
	"cmp"
	"sync"
	"time"
)

const (
	// burst and every are the defaults of Actors.
	burst, every = 50, 10 * time.Second
	// maxActors bounds the actors that are remembered; when there are more, all are forgotten.
	maxActors = 4096
)

// Actors are those who are bounded, each by itself. The zero value knows nobody. Safe for concurrent use.
type Actors struct {
	// Burst is how often one actor may at once. Zero: 50. Set before use.
	Burst int
	// Every is how long it then takes until it may again, once. Zero: 10 seconds. Set before use.
	Every time.Duration

	mu     sync.Mutex
	actors map[string]*paced // guarded by mu
}

// paced is what is known of one actor.
type paced struct {
	left    int       // how often it may at once; negative: what it was charged beyond that
	since   time.Time // when left last grew
	refused int       // how often it might not, since it last might
}

// Take says whether an actor may once more, and how often before it might not.
func (p *Actors) Take(actor string, now time.Time) (may bool, refused int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	a := p.actor(actor, now)
	if a.left <= 0 {
		a.refused++
		return false, 0
	}
	a.left--
	refused, a.refused = a.refused, 0
	return true, refused
}

// Charge counts what an actor was let do as n times more than Take did: it turned out to cost so much. It may not again
// before that has passed.
func (p *Actors) Charge(actor string, n int, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.actor(actor, now).left -= n
}

// actor is what is known of one by now. The caller holds mu.
func (p *Actors) actor(name string, now time.Time) *paced {
	most, every := cmp.Or(p.Burst, burst), cmp.Or(p.Every, every)
	a := p.actors[name]
	if a == nil {
		if p.actors == nil || len(p.actors) >= maxActors {
			p.actors = map[string]*paced{}
		}
		a = &paced{left: most, since: now}
		p.actors[name] = a
	}
	if n := int(now.Sub(a.since) / every); n > 0 {
		a.left, a.since = min(most, a.left+n), a.since.Add(time.Duration(n)*every)
	}
	return a
}
