package fleet

import (
	"context"
	"crypto/tls"
	"sync"
	"sync/atomic"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
)

// Simulator runs simulated Envoys that are part of no measurement here. Safe for concurrent use.
type Simulator struct {
	refs       *refs
	buffers    sync.Pool
	extensions []*corev3.Extension
	nothing    atomic.Pointer[watch] // nil: nothing is waited for
}

// NewSimulator makes one.
func NewSimulator() *Simulator {
	return &Simulator{refs: newRefs(), extensions: newExtensions()}
}

// Run keeps an Envoy with that node connected to addr by delta until ctx ends, with TLS unless
// secure is nil. The node gets the extensions of a real one. onReady is called once, when the Envoy
// has everything that it asked for.
func (s *Simulator) Run(ctx context.Context, addr string, node *corev3.Node, secure *tls.Config, onReady func()) {
	node.UserAgentName, node.Extensions = "envoy", s.extensions
	p := &proxy{node: node, delta: true, tls: secure, refs: s.refs, buffers: &s.buffers, current: &s.nothing,
		onReady: func(time.Duration) { onReady() }}
	p.run(ctx, addr)
}
