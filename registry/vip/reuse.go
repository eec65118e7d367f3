package vip

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/virtualip"
	"github.com/ashore-mesh/ashore/registry"
)

// roundGap is between two attempts to give what others have to those that lack addresses. It is a little less than the time after
// which holders ask again, so that none of them misses its turn by chance.
const roundGap = 4 * time.Second

// sight is that a host is idle.
type sight struct {
	since time.Time // by the clock of who noted it
	at    time.Time // when this replica saw it first, by its own monotonic clock
}

// dearth is that there are no free addresses. The zero value: there may be.
type dearth struct {
	at   time.Time             // the last attempt; zero: there is to be one whoever asks
	why  error                 // what came of it
	keys map[registry.Key]bool // who was left without
}

// allocate is Ledger's Allocate, with the addresses of hosts that are nowhere when there are no free ones. All holders have one
// attempt at those in a while, for what any of them lacks; in between who was left without is told why at once.
func (b *Book) allocate(ctx context.Context, keys []registry.Key) (map[registry.Key][]netip.Addr, error) {
	ask, first, why := b.sift(keys, time.Now())
	if len(ask) == 0 && why != nil {
		return nil, why
	}
	got, err := b.cfg.Ledger.Allocate(ctx, ask)
	if first && errors.Is(err, virtualip.ErrExhausted) {
		err = b.round(ctx, ask, got, err)
	}
	b.settle(ask, got, first, err)
	return got, cmp.Or(err, why)
}

// sift says what to ask the Ledger for now: what was not left without a moment ago, with the reason of what was; or, when it is time
// for another attempt, which first says, all that anybody lacks.
func (b *Book) sift(keys []registry.Key, now time.Time) (ask []registry.Key, first bool, why error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	d := &b.dearth
	if !d.at.IsZero() && now.Sub(d.at) < roundGap {
		ask = slices.DeleteFunc(slices.Clone(keys), func(k registry.Key) bool { return d.keys[k] })
		if len(ask) < len(keys) {
			why = d.why
		}
		return ask, false, why
	}
	if !d.at.IsZero() {
		d.at = now // nobody else has one meanwhile
	}
	ask = slices.Clone(keys)
	for _, k := range keys {
		delete(d.keys, k)
	}
	for k := range d.keys {
		if b.uses(k) {
			ask = append(ask, k)
		}
	}
	return ask, true, nil
}

// uses says whether a holder has a host. mu is held.
func (b *Book) uses(k registry.Key) bool {
	for h := range b.holders {
		if _, has := h.told[k]; has {
			return true
		}
	}
	return false
}

// settle notes who of those that were asked for is left without, and why.
func (b *Book) settle(asked []registry.Key, got map[registry.Key][]netip.Addr, first bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	d := &b.dearth
	switch exhausted := errors.Is(err, virtualip.ErrExhausted); {
	case first && err == nil:
		*d = dearth{}
		return
	case first && !exhausted: // it is not known; who was left without is asked for again, whoever asks
		d.at = time.Time{}
		return
	case first:
		*d = dearth{at: time.Now(), why: err, keys: map[registry.Key]bool{}}
	case !exhausted:
		return
	}
	for _, k := range asked {
		if got[k] == nil && d.keys != nil {
			d.keys[k] = true
		}
	}
}

// round gives those of keys that have got nothing the addresses of hosts that are nowhere, and returns why some are left without.
func (b *Book) round(ctx context.Context, keys []registry.Key, got map[registry.Key][]netip.Addr, full error) error {
	// what is in use here must not be taken, whatever is noted of it
	if err := b.claimAll(ctx); err != nil {
		return err
	}
	lacking := slices.DeleteFunc(slices.Clone(keys), func(k registry.Key) bool { return got[k] != nil })
	var given []registry.Handover
	if idle := b.rested(time.Now()); len(idle) > 0 {
		var err error
		if given, err = b.cfg.Ledger.Reuse(ctx, lacking, idle); err != nil {
			return err
		}
	}
	for i, h := range given {
		if got[h.To] = h.From.Addresses; i < mostTold {
			b.tell(h)
		}
	}
	if more := len(given) - mostTold; more > 0 {
		b.cfg.Log.Info("the virtual addresses of more hosts that are gone were given to others", "hosts", more)
		b.cfg.Audit(audit.Event{Action: audit.AddressReuse, Actor: "ashored", Target: "addresses", Reason: fmt.Sprintf("%d more at once", more)})
	}
	if len(given) < len(lacking) {
		return fmt.Errorf("%w; none of those is of a host that no source has had for %s, and that this replica has seen to be nowhere for %s, which could be given to another", full, b.cfg.Rest, seenFor)
	}
	return nil
}

// claimAll claims all that is in use here, and sees what is idle.
func (b *Book) claimAll(ctx context.Context) error {
	held, idle := b.inUse(), map[registry.Key]time.Time{}
	var claim []registry.Key
	for a := range b.cfg.Ledger.Allocations() {
		if a.Idle.IsZero() {
			continue
		}
		if idle[a.Key] = a.Idle; held[a.Key] {
			claim = append(claim, a.Key)
		}
	}
	b.see(idle, time.Now())
	_, err := b.claim(ctx, claim)
	return err
}

// inUse are the hosts of all holders.
func (b *Book) inUse() map[registry.Key]bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := map[registry.Key]bool{}
	for h := range b.holders {
		for k := range h.told {
			out[k] = true
		}
	}
	return out
}

// see takes in which hosts are idle now, and since when the store says so. One that was claimed meanwhile and is idle again is seen anew.
func (b *Book) see(idle map[registry.Key]time.Time, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	seen := make(map[registry.Key]sight, len(idle))
	for k, since := range idle {
		s, had := b.seen[k]
		if !had || !s.since.Equal(since) {
			s = sight{since: since, at: now}
		}
		seen[k] = s
	}
	b.seen = seen
}

// rested are the hosts whose addresses may go to others, and since when they are idle: by the clocks of replicas for a rest, and by this
// one's for long enough that whoever uses them would have said so, however wrong the others are.
func (b *Book) rested(now time.Time) map[registry.Key]time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	out, before := map[registry.Key]time.Time{}, now.Add(-b.cfg.Rest)
	for k, s := range b.seen {
		if s.since.Before(before) && now.Sub(s.at) >= seenFor {
			out[k] = s.since
		}
	}
	return out
}

// tell tells that an address is another host's.
func (b *Book) tell(h registry.Handover) {
	v4, from := h.From.Addresses[0].String(), h.From
	b.cfg.Log.Info("the virtual addresses of a host that is gone were given to another, as there are no free ones", "address", v4, "host", h.To.Host, "namespace", h.To.Namespace,
		"former_host", from.Key.Host, "former_namespace", from.Key.Namespace, "gone_since", from.Idle)
	b.cfg.Audit(audit.Event{Action: audit.AddressReuse, Actor: "ashored", Target: v4, Reason: "all virtual addresses are allocated, and no source has had its host since " + from.Idle.Format(time.RFC3339),
		Details: map[string]string{"host": h.To.Host, "namespace": h.To.Namespace, "formerHost": from.Key.Host, "formerNamespace": from.Key.Namespace}})
}
