package consul

import (
	"context"
	"fmt"
	"time"

	"github.com/ashore-mesh/ashore/internal/feed"
)

const (
	// turn is how often, about, everything about a place is asked for where there are too few connections to wait for all of it at once,
	// and leastTurn how long one wait is at least then, however seldom that makes it.
	turn, leastTurn = 10 * time.Second, time.Second
)

// turns are the connections for queries about all services of a place. Where there are fewer than queries they are taken by turns,
// first come first served, so that none is never asked. Safe for concurrent use.
type turns struct {
	seats      // the connections
	wanted int // queries; guarded by mu
}

// bound takes in how many connections there are for how many queries. It says whether these take turns now and did not before.
func (t *turns) bound(most, wanted int) (began bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	was := t.wanted > t.most
	t.most, t.wanted = most, wanted
	t.next()
	return !was && wanted > most
}

// take waits for a connection, until ctx ends, and says for how long a query may wait by it.
func (t *turns) take(ctx context.Context) (time.Duration, error) {
	if err := t.seats.take(ctx); err != nil {
		return 0, err
	}
	return t.wait(), nil
}

func (t *turns) wait() time.Duration {
	wait, _ := t.round()
	return wait
}

// round is for how long a query may wait, and how long it takes until all have: so late may one hear of a change that came when its turn was
// over. Zero: none takes turns.
func (t *turns) round() (wait, round time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.wanted <= t.most {
		return longWait, 0
	}
	most, wanted := time.Duration(t.most), time.Duration(t.wanted)
	wait = max(leastTurn, turn*most/wanted)
	return wait, wait * wanted / most
}

// inTurn asks something about all of a place, when it is its turn, with how long the query may wait.
func (k *keeper) inTurn(ctx context.Context, ask func(wait time.Duration) (answer, error)) (answer, error) {
	wait, err := k.slots.turns.take(ctx)
	if err != nil {
		return answer{}, err
	}
	defer k.slots.turns.give()
	return ask(wait)
}

// tellTurns tells that places are asked by turns, or that they are no more.
func (k *keeper) tellTurns() {
	have, late := k.slots.short()
	if late == 0 {
		k.notify(k.turnsNotice, nil, time.Time{})
		return
	}
	p := feed.Problem{
		Severity: feed.Warning, Object: "Consul", Since: time.Now(),
		Text: fmt.Sprintf("%d datacenters and namespaces are asked by turns over %d connections to Consul at %s, so that a change may be heard of up to some %s late: "+
			"use an https address, where few connections are needed, or allow %d (connections, and Consul's limits.http_max_conns_per_client)",
			len(k.scopes), have, k.o.Address, late.Round(time.Second), len(k.scopes)*(besides+leastKeeping)),
	}
	if was := k.turnsNotice.problem; was != nil {
		p.Since = was.Since
	}
	k.notify(k.turnsNotice, &p, time.Time{})
}

// short says how many connections there may be, and how late one hears of changes where those are too few for all queries about places at
// once; zero: they are not.
func (s *slots) short() (connections int, late time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, late = s.turns.round()
	return s.connections, late
}
