package agent

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// Run renews the certificate until ctx ends.
func (k *Keeper) Run(ctx context.Context) error {
	k.plan(k.clock(), true)
	for k.awaitDue(ctx) {
		err := k.renew(ctx)
		if ctx.Err() != nil {
			return nil
		}
		k.note(err)
	}
	return nil
}

// clockLook is how often the clock is looked at while nothing is due: timers stand still while a
// machine sleeps, and clocks are set.
const clockLook = 5 * time.Second

// awaitDue waits until the certificate is to be renewed. False: ctx ended.
func (k *Keeper) awaitDue(ctx context.Context) bool {
	for ctx.Err() == nil {
		k.mu.Lock()
		left := k.due.Sub(k.clock())
		k.mu.Unlock()
		if left <= 0 {
			return true
		}
		select {
		case <-ctx.Done():
		case <-k.now:
			return true
		case <-time.After(min(left, clockLook)):
		}
	}
	return false
}

// plan says when the certificate is renewed next. start says that the agent has just begun.
func (k *Keeper) plan(now time.Time, start bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	from, end := k.span()
	k.due = renewalTime(from, end, rand.Float64())
	if late := now.Sub(k.due); start && late > 0 {
		// Many agents may begin at one moment, after a power cut.
		k.due = now.Add(time.Duration(rand.Float64() * float64(min(end.Sub(from)/100, 10*time.Second))))
	}
	k.log.Debug("the certificate is renewed in time", "at", k.due, "ends", end)
}

// span is when the certificate came and when it ends. It begins before it came, for clocks that are
// late. Only executed with mu held.
func (k *Keeper) span() (from, end time.Time) {
	leaf := k.id.Leaf()
	from, end = k.joined.Renewed, leaf.NotAfter
	if from.Before(leaf.NotBefore) || !from.Before(end) {
		from = leaf.NotBefore
	}
	return from, end
}

// renewalTime is half of a life, and up to a tenth of it earlier or later: machines that joined
// together do not renew together. random is from 0 to 1.
func renewalTime(from, end time.Time, random float64) time.Time {
	life := end.Sub(from)
	return from.Add(time.Duration(float64(life) * (0.4 + 0.2*random)))
}

// The pauses between failed tries.
const (
	shortestRetry = time.Second
	longestRetry  = 5 * time.Minute
)

// retryPause is how long to wait after so many failed tries: it doubles, is at most a twentieth of
// a life, and half of it is by chance. random is from 0 to 1.
func retryPause(tries int, life time.Duration, random float64) time.Duration {
	longest := min(max(life/20, shortestRetry), longestRetry)
	pause := min(shortestRetry<<min(tries-1, 20), longest)
	return pause/2 + time.Duration(random*float64(pause))
}

// renew gets a new certificate, for a new key, and keeps it.
func (k *Keeper) renew(ctx context.Context) error {
	k.saving.Lock()
	key, err := k.store.nextKey()
	k.saving.Unlock()
	if err != nil {
		return err
	}
	next, _, err := k.ask(ctx, certificateRequest{key: key, name: k.name})
	if err != nil {
		return err
	}
	return k.take(next, k.clock())
}

// take keeps a certificate that came, and uses it from then on.
func (k *Keeper) take(next *Identity, now time.Time) error {
	k.saving.Lock()
	defer k.saving.Unlock()
	if old := k.Identity(); next.ID != old.ID {
		return fmt.Errorf("the control plane gave a certificate for %s, and this workload is %s: see \"ashorectl "+
			"workload list\" there", next.ID, old.ID)
	}
	if err := checkValidNow(next, now); err != nil {
		return err
	}
	joined := k.Joined()
	joined.Renewed = now
	if err := k.store.save(next, joined); err != nil {
		return err
	}
	k.mu.Lock()
	k.renewals++
	k.mu.Unlock()
	k.replace(next, joined)
	k.log.Info("certificate renewed", "serial", next.Serial(), "ends", next.Leaf().NotAfter)
	return k.store.forgetKey()
}

// backdate is how long before its issue a certificate begins.
const backdate = 2 * time.Minute

// clockSkew is how far this machine's clock is ahead of the authority's, which has just issued the
// certificate. One of an authority that is younger than backdate begins when that does: its skew is
// wrong by backdate at most.
func clockSkew(id *Identity, now time.Time) time.Duration {
	return now.Sub(id.Leaf().NotBefore) - backdate
}

// checkValidNow says what is wrong with a certificate that has just come.
func checkValidNow(id *Identity, now time.Time) error {
	if text := clockTrouble(id.Chain, now); text != "" {
		return serverError("%s", text)
	}
	return nil
}

// note records how a try to renew went, and plans the next.
func (k *Keeper) note(err error) {
	if err == nil {
		k.mu.Lock()
		k.trouble, k.tries = nil, 0
		k.mu.Unlock()
		k.plan(k.clock(), false)
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.trouble = err
	k.tries++
	from, end := k.span()
	now := k.clock()
	pause := retryPause(k.tries, end.Sub(from), rand.Float64())
	k.due = now.Add(pause)
	left := end.Sub(now).Round(time.Second)
	var refused *RefusedError
	switch {
	case left <= 0:
		k.log.Error("the certificate has ended and cannot be renewed: others refuse this workload; join again if this "+
			"goes on", "ended", end, "error", err, "next", pause)
	case errors.As(err, &refused):
		k.log.Error("the control plane does not renew the certificate", "left", left, "error", err, "next", pause)
	default:
		k.log.Warn("the certificate cannot be renewed now", "left", left, "tries", k.tries, "error", err, "next", pause)
	}
}

// Renewal is the state of renewing.
type Renewal struct {
	// Due is when it is tried next.
	Due time.Time
	// Trouble is why the last try failed; nil when it did not.
	Trouble error
	// Tries is how many failed since the last certificate came; Count how many certificates
	// came since the start.
	Tries int
	Count uint64
}

// Renewal returns the current state.
func (k *Keeper) Renewal() Renewal {
	k.mu.Lock()
	defer k.mu.Unlock()
	return Renewal{k.due, k.trouble, k.tries, k.renewals}
}
