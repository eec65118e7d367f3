package agent

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// firstBackoff and lastBackoff are the bounds of the wait before the next try, when all replicas have been tried.
	firstBackoff = 500 * time.Millisecond
	lastBackoff  = 30 * time.Second
	// nodeWait is how long the first stream waits for Envoy to say what it can do.
	nodeWait = 2 * time.Second
	// provenWait is how long a stream on which no roots are asked for has to last without an answer until it counts as accepted:
	// where nothing changed, no answer comes.
	provenWait = 2 * time.Second
)

// errAgain is that the stream has to be opened anew, and nothing is wrong with it.
var errAgain = errors.New("a new stream is due")

// follow keeps one stream to one of the control planes. It stays with a replica until that fails; then the next one is
// tried, after a wait that grows when all have failed.
func (p *proxy) follow(ctx context.Context) error {
	p.awaitNode(ctx)
	addresses := p.cfg.Addresses
	at, failures := rand.IntN(len(addresses)), 0
	var current *upstreamLink
	defer func() { current.close() }()
	retry := time.AfterFunc(0, func() {})
	defer func() { retry.Stop() }()
	for ctx.Err() == nil {
		next, err := p.connect(ctx, addresses[at])
		if err == nil {
			p.attach(next, current)
			current = next
			err = p.exchange(ctx, current)
			if current.proven {
				failures = 0
			}
		} else if current != nil && ctx.Err() == nil {
			p.log.Warn("a new stream to the control plane cannot be opened, the old one goes on", "address", addresses[at], "error", err)
			at = (at + 1) % len(addresses)
			failures++
			retry.Stop()
			retry = time.AfterFunc(backoff(failures, len(addresses)), func() { poke(p.again) })
			err = p.exchange(ctx, current)
		}
		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, errAgain) {
			continue
		}
		current.close()
		current = nil
		p.detach(addresses[at], err)
		at = (at + 1) % len(addresses)
		failures++
		if !sleep(ctx, backoff(failures, len(addresses))) {
			return nil
		}
	}
	return nil
}

// backoff is how long to wait after so many failures in a row: each replica is tried soon, but not by everybody at one
// moment, then ever later.
func backoff(failures, replicas int) time.Duration {
	most := firstBackoff
	for range (failures - 1) / replicas {
		most = min(2*most, lastBackoff)
	}
	return most/4 + rand.N(most*3/4)
}

// sleep waits; false: ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// awaitNode waits, for a bound, until Envoy has said what it can do, unless the copy knows: what the control plane sends
// depends on it.
func (p *proxy) awaitNode(ctx context.Context) {
	p.mu.Lock()
	known := p.build != nil
	p.mu.Unlock()
	if known {
		return
	}
	select {
	case <-ctx.Done():
	case <-p.again:
	case <-time.After(nodeWait):
	}
}

// attach makes a new stream the one that counts. The old one, which may be nil, goes on without being heard until the
// new one has proven itself.
func (p *proxy) attach(next, old *upstreamLink) {
	next.old = old
	p.locked(func() {
		next.node = append(append([]byte(nil), p.node...), p.build...)
		next.up = p.relay.connect()
		if p.cfg.SetRoots != nil {
			next.askRoots()
		}
		if p.health != nil {
			p.health.sent = false
		}
		p.link.address = next.address
	})
}

// detach notes that a stream ended, or could not be opened.
func (p *proxy) detach(address string, err error) {
	text := streamError(address, err)
	var was, again bool
	p.locked(func() {
		was, again = p.link.proven, p.link.lastErr == text
		if was {
			p.confirmed, p.link.since = p.heard().Round(0), p.now()
		}
		p.link = linkState{since: p.link.since, lastErr: text}
		p.relay.up = nil
	})
	if was || !again {
		p.log.Warn("no stream to the control plane: envoy goes on with what is held", "error", text)
	}
}

// streamError says why a stream ended, and what to do.
func streamError(address string, err error) string {
	s, ok := status.FromError(err)
	if !ok || err == nil {
		return fmt.Sprint(err) // Dial's name the address
	}
	todo := ""
	switch s.Code() {
	case codes.PermissionDenied:
		todo = "; the workload may be revoked, or its settings name another namespace or service account than its certificate"
	case codes.Unauthenticated:
		todo = "; see \"ashore-agent status\" for the state of its certificate, or join again"
	case codes.Unimplemented:
		todo = "; this is not a control plane's xDS port"
	}
	return fmt.Sprintf("control plane %s: %s: %s%s", address, s.Code(), s.Message(), todo)
}

// prove notes that a control plane speaks on a stream: what is held is what it says. The stream before may end.
func (p *proxy) prove(l *upstreamLink) {
	l.silent = 0
	if l.proven {
		p.locked(func() { p.confirmed = p.now().Round(0) })
		return
	}
	l.proven = true
	l.old.close()
	l.old = nil
	p.locked(func() {
		if !p.link.proven || p.link.address != l.address {
			p.link.since = p.now()
		}
		p.link.proven, p.link.address, p.onCopy = true, l.address, time.Time{}
		p.confirmed = p.now().Round(0)
		p.relay.expire(false)
	})
	p.log.Info("connected to the control plane", "address", l.address)
}
