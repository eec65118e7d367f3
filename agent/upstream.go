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
	// refusedBackoff bounds it where a control plane answers and does not accept the workload: who is restored is back soon.
	refusedBackoff = 10 * time.Second
	// steadyLink is how long a stream has to last to end a series of failures: a control plane that accepts streams and ends them
	// at once is not to be asked by everybody several times a second.
	steadyLink = 10 * time.Second
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
	f := &follower{proxy: p, at: rand.IntN(len(p.cfg.Addresses)), retry: time.AfterFunc(0, func() {})}
	defer func() {
		f.retry.Stop()
		f.current.close()
	}()
	for ctx.Err() == nil {
		err := f.step(ctx)
		if ctx.Err() != nil || errors.Is(err, errAgain) {
			continue
		}
		address := f.address()
		if f.current != nil {
			address = f.current.address
		}
		f.current.close()
		f.current = nil
		p.detach(address, err)
		if !sleep(ctx, f.fail(refuses(err))) {
			return nil
		}
	}
	return nil
}

// follower is where follow stands. Only executed by its goroutine.
type follower struct {
	*proxy
	at       int           // of the addresses: the one to be tried next
	failures int           // in a row
	current  *upstreamLink // nil: none
	retry    *time.Timer   // asks for a new stream while the current one goes on
}

func (f *follower) address() string { return f.cfg.Addresses[f.at] }

// fail goes on to the next replica, and says how long to wait before.
func (f *follower) fail(refused bool) time.Duration {
	f.at = (f.at + 1) % len(f.cfg.Addresses)
	f.failures++
	most := lastBackoff
	if refused {
		most = refusedBackoff
	}
	return backoff(f.failures, len(f.cfg.Addresses), most)
}

// refuses says that a control plane does not accept the workload.
func refuses(err error) bool {
	code := status.Code(err)
	return code == codes.Unauthenticated || code == codes.PermissionDenied
}

// step opens a stream and talks on it, or on the current one when that is not possible. Errors: errAgain, or why there is
// none any more.
func (f *follower) step(ctx context.Context) error {
	next, err, lost := f.connectBeside(ctx, f.address(), f.current)
	switch {
	case err == nil:
		f.attach(next, f.current)
		f.current = next
	case f.current == nil:
		return err
	case lost != nil || ctx.Err() != nil:
		return lost
	default:
		f.log.Warn("a new stream to the control plane cannot be opened, the old one goes on", "address", f.address(), "error", err)
		f.retry.Stop()
		f.retry = time.AfterFunc(f.fail(refuses(err)), func() { poke(f.again) })
	}
	lost = f.exchange(ctx, f.current, f.again, f.cfg.Renewed)
	if err == nil && f.current.proven && time.Since(f.current.opened) >= steadyLink {
		f.failures = 0
	}
	return lost
}

// connectBeside is connect while the current stream, which may be nil, is heard. lost is why that ended meanwhile; nil: it did
// not.
func (p *proxy) connectBeside(ctx context.Context, address string, current *upstreamLink) (next *upstreamLink, err, lost error) {
	if current == nil {
		next, err = p.connect(ctx, address)
		return next, err, nil
	}
	dialled := make(chan struct{})
	go func() {
		defer close(dialled)
		next, err = p.connect(ctx, address)
	}()
	lost = p.exchange(ctx, current, dialled, nil)
	<-dialled
	if errors.Is(lost, errAgain) {
		lost = nil
	}
	return next, err, lost
}

// backoff is how long to wait after so many failures in a row: each replica is tried soon, but not by everybody at one
// moment, then ever later, up to longest.
func backoff(failures, replicas int, longest time.Duration) time.Duration {
	most := firstBackoff
	for range (failures - 1) / replicas {
		most = min(2*most, longest)
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
		if p.cfg.SetProbe != nil {
			next.askProbe()
		}
		if p.health != nil {
			p.health.sent = false
		}
		p.link.address = next.address
	})
}

// detach notes that a stream ended, or could not be opened.
func (p *proxy) detach(address string, err error) {
	if p.cfg.Refused != nil && status.Code(err) == codes.Unauthenticated {
		p.cfg.Refused()
	}
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
	if p.cfg.Accepted != nil {
		p.cfg.Accepted()
	}
	p.log.Info("connected to the control plane", "address", l.address)
}
