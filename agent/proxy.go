package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/hashicorp/go-hclog"
	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/internal/task"
)

// proxyConfig is what a proxy is made of. Node, Addresses, Dial and Log are needed; zero values of the rest are the
// defaults.
type proxyConfig struct {
	// Node is how the agent's Envoy introduces itself, as its bootstrap says. The control plane hears it with what Envoy
	// adds: its version and extensions.
	Node *corev3.Node
	// Addresses are host:port of the control plane's replicas.
	Addresses []string
	// Dial opens a connection to one of them and verifies who answers; it is called for each stream, so that it uses the
	// certificate of that moment. Its errors are shown to the operator.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// Renewed tells that Dial would present another certificate: a new stream is opened, and then the old one ended.
	Renewed <-chan struct{}
	// Refused is told each time that a control plane, which Dial has verified, does not believe the certificate that Dial
	// presented. It must not wait. Nil: nobody is told.
	Refused func()
	// Accepted is told each time that a control plane begins to speak on a new stream: it does believe it. It must not wait.
	// Nil: nobody is told.
	Accepted func()
	// SetRoots takes the certificates of the mesh's roots, PEM, whenever they change. Its error is told to the control
	// plane, which counts the roots as not received, and tells them again a minute later. Nil: the roots are not asked for.
	SetRoots func(pem []string) error
	// SetProbe takes the probe of the workload's group whenever a control plane tells it, also when it is as before, and in
	// newProxy the one of the copy: an empty one when the group has none, nil when no control plane tells any. Its error is
	// told to the control plane; the one before is kept then. It must not wait. Nil: it is not asked for.
	SetProbe func(*networking.ReadinessProbe) error
	// Group is the name of the workload's group: a probe of another one in the copy is not used.
	Group string
	// Copy is the folder where a copy of what is held is kept. Empty: none is.
	Copy string
	// Identity is the workload's, a SPIFFE ID; a copy of another one is refused.
	Identity string
	// MaxAge is how long what is held may be used without a control plane that confirms it. Zero: 24h.
	MaxAge time.Duration
	// RefuseOld makes Envoy lose its listeners when what is held is older than MaxAge; otherwise that is an alarm. A copy on
	// disk that is older is refused in any case.
	RefuseOld bool
	// Now is the clock. Nil: time.Now.
	Now func() time.Time
	Log hclog.Logger
}

// defaultMaxAge is how long a mesh may be away.
const defaultMaxAge = 24 * time.Hour

// proxy stands between Envoy and the control plane: it answers Envoy from what it holds. Safe for concurrent use.
type proxy struct {
	cfg   proxyConfig  // set once
	log   hclog.Logger // set once
	now   func() time.Time
	node  []byte        // set once: encoded
	copy  *copyFolder   // set once; nil: none
	again chan struct{} // cap 1: the stream to the control plane has to be opened anew
	dirty chan struct{} // cap 1: the copy misses something

	mu        sync.Mutex
	relay     *relay        // guarded by mu
	seen      uint64        // guarded by mu: relay.version that dirty was told of
	saved     uint64        // guarded by mu: relay.version that the copy has
	build     []byte        // guarded by mu: what Envoy adds to node; nil: not known
	probe     toldProbe     // guarded by mu
	health    *healthReport // guarded by mu; nil: never reported
	link      linkState     // guarded by mu
	confirmed time.Time     // guarded by mu: when a control plane confirmed last what is held; zero: never
	bypassed  string        // guarded by mu: ports at which connections reach the workload past Envoy, "8080, 9090"
	onCopy    time.Time     // guarded by mu: since when it runs on a copy; zero: it does not
	refusal   string        // guarded by mu: why the copy on disk was not used; empty: it was, or there was none
	writeErr  string        // guarded by mu: why the copy could not be written; empty: it could
}

// linkState is how the proxy stands with the control plane.
type linkState struct {
	address string    // of the replica; empty: none
	since   time.Time // it is connected, or not
	proven  bool      // the replica accepted the stream
	lastErr string    // why the last stream could not be opened, or ended
}

// healthReport is what the workload's health was last.
type healthReport struct {
	words string // empty: healthy
	sent  bool   // on this stream
}

// newProxy makes one and reads the copy on disk. A copy that cannot be used is no error: the log and Status tell why.
// Errors: what is missing in c, or a folder that cannot be used.
func newProxy(c proxyConfig) (*proxy, error) {
	if c.Node.GetId() == "" || len(c.Addresses) == 0 || c.Dial == nil || c.Log == nil {
		return nil, errors.New("a proxy needs a node, addresses of the control plane, a way to it and a log")
	}
	if c.MaxAge == 0 {
		c.MaxAge = defaultMaxAge
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	node, err := proto.MarshalOptions{Deterministic: true}.Marshal(c.Node)
	if err != nil {
		return nil, fmt.Errorf("encode node: %w", err)
	}
	p := &proxy{cfg: c, log: c.Log.Named("xds"), now: c.Now, node: node, relay: newRelay(),
		again: make(chan struct{}, 1), dirty: make(chan struct{}, 1)}
	p.link.since = p.now()
	if c.Copy == "" {
		return p, nil
	}
	if p.copy, err = openCopyFolder(c.Copy, copyOwner{node: c.Node.GetId(), identity: c.Identity}); err != nil {
		return nil, err
	}
	p.restore()
	return p, nil
}

// Run keeps a stream to the control plane, and the copy, until ctx ends.
func (p *proxy) Run(ctx context.Context) error {
	parts := []task.Part{
		{Name: "stream to the control plane", Run: p.follow},
		{Name: "age of the configuration", Run: p.watchAge},
	}
	if p.copy != nil {
		parts = append(parts, task.Part{Name: "copy of the configuration", Run: p.keepCopy})
	}
	return task.Run(ctx, parts...)
}

// ReportHealth tells the control plane whether the workload is healthy: nil when it is, else why not. It is repeated on
// each new stream.
func (p *proxy) ReportHealth(err error) {
	words := ""
	if err != nil {
		if words = err.Error(); words == "" {
			words = "unhealthy"
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.health != nil && p.health.words == words {
		return
	}
	p.health = &healthReport{words: words}
	p.relay.rouseUpstream()
}

// locked runs f while nothing else touches the relay.
func (p *proxy) locked(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
	if p.seen != p.relay.version {
		p.seen = p.relay.version
		poke(p.dirty)
	}
}

// watchAge tells when what is held is too old.
func (p *proxy) watchAge(ctx context.Context) error {
	tick := time.NewTicker(max(10*time.Millisecond, min(time.Minute, p.cfg.MaxAge/8)))
	defer tick.Stop()
	told := false
	for {
		var age time.Duration
		old := false
		p.locked(func() {
			age, old = p.age()
			p.relay.expire(old && p.cfg.RefuseOld)
		})
		if old && !told {
			p.tellOld(age)
		}
		if told && !old {
			p.log.Info("the control plane confirms the configuration again")
		}
		told = old
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (p *proxy) tellOld(age time.Duration) {
	if p.cfg.RefuseOld {
		p.log.Error("no control plane confirmed the configuration for too long: envoy serves nothing until one does", "age", age.Round(time.Second), "bound", p.cfg.MaxAge)
		return
	}
	p.log.Error("no control plane confirmed the configuration for too long: revocations and policies since then are not known here; traffic goes on",
		"age", age.Round(time.Second), "bound", p.cfg.MaxAge)
}

// heard is when a control plane last said that what is held is right. p.mu is held.
func (p *proxy) heard() time.Time {
	if p.link.proven && p.cfg.SetRoots == nil {
		return p.now() // nothing is asked again and again: the stream is all there is
	}
	return p.confirmed
}

// age is how long ago a control plane confirmed what is held, and whether that is too long. A stream that is open proves nothing
// by itself: the machine may have slept for a week, and the control plane may be stuck. p.mu is held.
func (p *proxy) age() (age time.Duration, old bool) {
	if p.confirmed.IsZero() {
		return 0, false
	}
	if now := p.now(); p.confirmed.After(now) {
		p.confirmed = now.Round(0) // the clock was set back: it counts from here
	}
	age = p.now().Sub(p.heard())
	if p.link.proven && age < 3*confirmGap {
		return age, false
	}
	return age, age > p.cfg.MaxAge
}

// proxyStatus is how a proxy is.
type proxyStatus struct {
	// Connected is the address of the control plane that it follows, empty: none; Since is since when.
	Connected string
	Since     time.Time
	// LastError is why the last stream could not be opened, or ended; it stays while connected, for what was.
	LastError string
	// Confirmed is when a control plane last confirmed what is held; zero: never. Old says that this is too long ago.
	Confirmed time.Time
	Old       bool
	// CopyFrom is when the copy was confirmed that the proxy runs on, since no control plane answered after the start; zero: it
	// does not. CopyRefused is why the copy on disk was not used, and CopyError why it cannot be written.
	CopyFrom               time.Time
	CopyRefused, CopyError string
	// Resources are held; of them Envoy refuses Refused, with Words.
	Resources, Refused int
	Words              []string
	// Envoys is how many streams of Envoy are open.
	Envoys int
	// Bypassed are the ports of the workload at which connections reach it past Envoy, "80, 81",
	// as the control plane said last.
	Bypassed string
}

// Text is the status in one line: "connected to …", "running on a copy from … (… old)", "not connected".
func (s *proxyStatus) Text(now time.Time) string {
	age := func(t time.Time) string { return span(now.Sub(t)) }
	switch {
	case s.Connected != "":
		return fmt.Sprintf("connected to %s for %s", s.Connected, age(s.Since))
	case !s.CopyFrom.IsZero():
		return fmt.Sprintf("running on a copy from %s (%s old): %s", s.CopyFrom.UTC().Format(time.RFC3339), age(s.CopyFrom), s.LastError)
	case !s.Confirmed.IsZero():
		return fmt.Sprintf("running on what the control plane said until %s (%s ago): %s", s.Confirmed.UTC().Format(time.RFC3339), age(s.Confirmed), s.LastError)
	}
	return "no control plane has answered yet: " + s.LastError
}

// Status is how the proxy is now.
func (p *proxy) Status() proxyStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := proxyStatus{Since: p.link.since, LastError: p.link.lastErr, Confirmed: p.confirmed, CopyFrom: p.onCopy, Bypassed: p.bypassed,
		CopyRefused: p.refusal, CopyError: p.writeErr, Envoys: len(p.relay.streams), Words: p.relay.refusedWords()}
	if p.link.proven {
		s.Connected, s.Confirmed = p.link.address, p.heard()
	}
	_, s.Old = p.age()
	s.Resources, s.Refused = p.relay.counts()
	return s
}
