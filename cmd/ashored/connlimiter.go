package main

import (
	"context"
	"crypto/x509"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/ashore-mesh/ashore/internal/ratelimit"
	"github.com/ashore-mesh/ashore/internal/spiffe"
	"github.com/ashore-mesh/ashore/internal/unfinished"
)

// refusalTime is how long a connection that is one too many stays open, so that its client is told why.
const refusalTime = 5 * time.Second

// workloadBytes limits the memory of one workload's requests and subscriptions, unfinishedBytes that of
// its incomplete requests: the largest one fits. Both are for 16 connections and grow with the setting.
// unprovenBytes limits the incomplete requests of a connection that no workload has proven to be its own.
const workloadBytes, unfinishedBytes, unprovenBytes = 12 << 20, 6 << 20, 256 << 10

// workloadLimit is that of a workload that may have so many connections.
func workloadLimit(bytes, connections int) int { return max(bytes, bytes/16*connections) }

// connLimiter bounds what the connections of one workload take: how many there are, and how much of its requests is held that
// has not arrived in full. Connections are counted by lobby.mu.
type connLimiter struct {
	most    int                    // set once: connections of one workload
	refused *prometheus.CounterVec // set once
	log     *ratelimit.Logger      // set once

	workloads map[string]*workloadConns // guarded by lobby.mu: by xds.QuotaKey
}

// workloadConns are the connections of one workload.
type workloadConns struct {
	count      int // guarded by lobby.mu
	unfinished *unfinished.Budget
}

// client is who is at the other end of a connection.
type client struct {
	id   spiffe.ID
	key  string // xds.QuotaKey
	from netip.Prefix
}

// newConnLimiter makes one for most connections of each workload. Errors: a metric that is registered already.
func newConnLimiter(most int, r prometheus.Registerer, log hclog.Logger) (*connLimiter, error) {
	l := &connLimiter{most: most, log: ratelimit.NewLogger(log), workloads: map[string]*workloadConns{},
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "ashore_connections_refused_total",
			Help: "Connections refused or closed because their workload exceeded a limit."}, []string{"reason"})}
	for _, reason := range []string{tooManyConnections, tooMuchUnfinished} {
		l.refused.WithLabelValues(reason)
	}
	return l, r.Register(l.refused)
}

// Reasons of refusals, for the metric.
const tooManyConnections, tooMuchUnfinished = "connections", "unfinished requests"

// enter counts a connection. Errors: it is one too many, and not counted. Called with lobby.mu held.
func (l *connLimiter) enter(who client) (*workloadConns, error) {
	w := l.workloads[who.key]
	if w == nil {
		w = &workloadConns{unfinished: unfinished.NewBudget(workloadLimit(unfinishedBytes, l.most))}
		l.workloads[who.key] = w
	}
	if w.count >= l.most {
		return nil, fmt.Errorf("this workload has %d connections, no more are served (setting xds.workloadConnections of the control plane)", l.most)
	}
	w.count++
	return w, nil
}

// leave is the end of a connection that entered. Called with lobby.mu held.
func (l *connLimiter) leave(who client) {
	w := l.workloads[who.key]
	if w.count--; w.count == 0 {
		delete(l.workloads, who.key)
	}
}

// note counts and logs a refusal.
func (l *connLimiter) note(who client, reason string, why error) {
	l.refused.WithLabelValues(reason).Inc()
	l.log.Log(hclog.Warn, who.key, "connection refused: its workload has reached a limit", "identity", who.id, "from", who.from, "error", why)
}

// limitedTLS is TLS that lets out of the lobby who proves to be a workload, and limits what it takes.
type limitedTLS struct {
	credentials.TransportCredentials
	// proves says whose a chain is, whose key was proven to be at hand.
	proves func(chain []*x509.Certificate, now time.Time) (spiffe.ID, error)
}

// refusedConn is what is known of a connection that is one too many.
type refusedConn struct {
	credentials.AuthInfo
	why error
}

// ServerHandshake implements credentials.TransportCredentials.
func (d limitedTLS) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	out, info, err := d.TransportCredentials.ServerHandshake(c)
	if err != nil {
		return out, info, err
	}
	v, ok := c.(*visitor)
	if !ok {
		return out, info, nil
	}
	budget, err := v.greet(info, d.proves)
	if err != nil {
		info = refusedConn{info, err}
	}
	if budget == nil {
		budget = unfinished.NewBudget(unprovenBytes)
	}
	return unfinished.NewConn(out, budget, v.overflow), info, nil
}

// Clone implements credentials.TransportCredentials.
func (d limitedTLS) Clone() credentials.TransportCredentials {
	return limitedTLS{d.TransportCredentials.Clone(), d.proves}
}

// refusals are how a server tells connections that are too many.
func refusals() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			if err := refusal(ctx); err != nil {
				return nil, err
			}
			return next(ctx, req)
		}),
		grpc.ChainStreamInterceptor(func(srv any, st grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			if err := refusal(st.Context()); err != nil {
				return err
			}
			return next(srv, st)
		}),
	}
}

// refusal is why a call is not served.
func refusal(ctx context.Context) error {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}
	if t, ok := p.AuthInfo.(refusedConn); ok {
		return status.Error(codes.ResourceExhausted, t.why.Error())
	}
	return nil
}
