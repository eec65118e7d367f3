package fleet

import (
	"context"
	"crypto/tls"
	"sync/atomic"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
)

// Simulator makes simulated Envoys, which share what they know of resources. Safe for concurrent use.
type Simulator struct {
	refs       *refs
	extensions []*corev3.Extension
	current    atomic.Pointer[watch] // what its proxies wait for; nil: nothing
}

// NewSimulator makes one.
func NewSimulator() *Simulator {
	return &Simulator{refs: newRefs(), extensions: newExtensions()}
}

// Run keeps an Envoy with that node connected to addr until ctx ends, with TLS unless secure is nil.
// The node gets the extensions of a real one. onReady is called once, when the Envoy has everything
// that it asked for.
func (s *Simulator) Run(ctx context.Context, addr string, node *corev3.Node, secure *tls.Config,
	onReady func(time.Duration)) {
	s.proxy(node, secure, onReady).run(ctx, addr)
}

func (s *Simulator) proxy(node *corev3.Node, secure *tls.Config, onReady func(time.Duration)) *proxy {
	node.UserAgentName, node.Extensions = "envoy", s.extensions
	return &proxy{Simulator: s, node: node, tls: secure, onReady: onReady}
}
