package agent

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/hashicorp/go-hclog"
)

// Run renews the certificate until ctx ends.
func (m *CertManager) Run(ctx context.Context) error {
	m.plan(m.clock(), true)
	for m.awaitDue(ctx) {
		err := m.renew(ctx)
		if ctx.Err() != nil {
			return nil
		}
		m.note(err)
	}
	return nil
}

// clockCheck is how often awaitDue reads the clock. One long timer would be late: timers stop while
// a machine sleeps, and operators change clocks.
const clockCheck = 5 * time.Second

// awaitDue waits until the certificate is due for renewal. It returns false when ctx ended.
func (m *CertManager) awaitDue(ctx context.Context) bool {
	for ctx.Err() == nil {
		m.mu.Lock()
		left := m.renewal.Due.Sub(m.clock())
		m.mu.Unlock()
		if left <= 0 {
			return true
		}
		select {
		case <-ctx.Done():
		case <-m.now:
			return true
		case <-time.After(min(left, clockCheck)):
		}
	}
	return false
}

// plan schedules the next renewal. start means that the agent has just started.
func (m *CertManager) plan(now time.Time, start bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	from, end := m.span()
	m.renewal.Due = renewalTime(from, end, rand.Float64())
	if late := now.Sub(m.renewal.Due); start && late > 0 {
		// After a power cut many agents start at the same time: spread their renewals.
		m.renewal.Due = now.Add(time.Duration(rand.Float64() * float64(min(end.Sub(from)/100, 10*time.Second))))
	}
	m.log.Debug("the next renewal is scheduled", "at", m.renewal.Due, "ends", end)
}

// span returns when the certificate was received and when it expires. The caller holds m.mu.
func (m *CertManager) span() (from, end time.Time) {
	leaf := m.id.Leaf()
	from, end = m.joined.Renewed, leaf.NotAfter
	if from.Before(leaf.NotBefore) || !from.Before(end) { // the clock was wrong when it was received
		from = leaf.NotBefore
	}
	return from, end
}

// renewalTime returns a time at 40 to 60 % of the certificate's lifetime, so that machines that
// joined together do not renew together. random is from 0 to 1.
func renewalTime(from, end time.Time, random float64) time.Time {
	life := end.Sub(from)
	return from.Add(time.Duration(float64(life) * (0.4 + 0.2*random)))
}

// Bounds of the back-off after a failed attempt, before random is applied.
const (
	shortestRetry = time.Second
	longestRetry  = 5 * time.Minute
)

// retryPause returns the back-off after tries failed attempts. It doubles up to a twentieth of the
// certificate's lifetime, and then varies by ±50 %. random is from 0 to 1.
func retryPause(tries int, life time.Duration, random float64) time.Duration {
	longest := min(max(life/20, shortestRetry), longestRetry)
	pause := min(shortestRetry<<min(tries-1, 20), longest)
	return pause/2 + time.Duration(random*float64(pause))
}

// renew requests a certificate for a new key, and stores both. After a failure the next attempt
// uses the same key.
func (m *CertManager) renew(ctx context.Context) error {
	m.saving.Lock()
	key, err := m.store.nextKey()
	m.saving.Unlock()
	if err != nil {
		return err
	}
	next, err := m.ask(ctx, certificateRequest{key: key, name: m.name})
	if err != nil {
		return err
	}
	return m.take(next, m.clock())
}

// take stores a new certificate and starts to use it.
func (m *CertManager) take(next *Identity, now time.Time) error {
	m.saving.Lock()
	defer m.saving.Unlock()
	if old := m.Identity(); next.ID != old.ID {
		return fmt.Errorf("the control plane gave a certificate for %s, and this workload is %s: see \"ashorectl "+
			"workload list\" there", next.ID, old.ID)
	}
	if err := checkValidNow(next, now); err != nil {
		return err
	}
	joined := m.Joined()
	joined.Renewed = now
	if err := m.replace(next, joined); err != nil {
		return err
	}
	m.log.Info("certificate renewed", "serial", next.Serial(), "ends", next.Leaf().NotAfter)
	return m.store.forgetKey()
}

// checkValidNow returns an error if a new certificate is not valid by this machine's clock.
func checkValidNow(id *Identity, now time.Time) error {
	if text := clockProblem(id.Chain, now); text != "" {
		return serverError("%s", text)
	}
	return nil
}

// note records the result of an attempt, and schedules the next attempt.
func (m *CertManager) note(err error) {
	if err == nil {
		m.mu.Lock()
		m.renewal.Err, m.renewal.Tries = nil, 0
		m.mu.Unlock()
		m.plan(m.clock(), false)
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.renewal.Err = err
	m.renewal.Tries++
	from, end := m.span()
	now := m.clock()
	pause := retryPause(m.renewal.Tries, end.Sub(from), rand.Float64())
	m.renewal.Due = now.Add(pause)
	left := end.Sub(now).Round(time.Second)
	level := hclog.Warn
	if _, refused := errors.AsType[*RefusedError](err); refused || left <= 0 {
		level = hclog.Error
	}
	m.log.Log(level, "the certificate is not renewed", "left", left, "tries", m.renewal.Tries, "error", err, "next", pause)
}

// Renewal is the state of the certificate's renewal.
type Renewal struct {
	// Due is when the next attempt is made.
	Due time.Time
	// Err is why the last attempt failed; nil if it succeeded.
	Err error
	// Tries counts the failed attempts since the last renewal. Count counts the renewals since the
	// agent started.
	Tries int
	Count uint64
}

// Renewal returns the current state.
func (m *CertManager) Renewal() Renewal {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.renewal
}
