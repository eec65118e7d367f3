package server

import (
	"context"
	"crypto/x509"
	"fmt"
	"math"
	"net"
	"net/netip"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/ashore-mesh/ashore/ca"
	"github.com/ashore-mesh/ashore/internal/connlimit"
	"github.com/ashore-mesh/ashore/internal/ratelimit"
	"github.com/ashore-mesh/ashore/internal/spiffe"
	"github.com/ashore-mesh/ashore/internal/unfinished"
	"github.com/ashore-mesh/ashore/xds"
)

const (
	// maxUnauthenticated limits the connections whose clients have not authenticated, some 64 KB
	// each, and maxFromSource those of one source address. It is large enough for a fleet that
	// connects at once.
	maxUnauthenticated, maxFromSource = 8192, 1024
	// unauthenticatedTime is how long a connection without a workload's certificate stays open
	// after the handshake. A machine that joins needs some milliseconds.
	unauthenticatedTime = 30 * time.Second
	// refusalTime is how long a connection beyond the limit stays open, so that its client reads
	// why.
	refusalTime = 5 * time.Second
)

// workloadBytes limits the memory of one workload's requests and subscriptions, unfinishedBytes
// that of its incomplete requests: the largest one fits. Both are for 16 connections and grow with
// the setting. unauthenticatedBytes limits the incomplete requests of an unauthenticated
// connection.
const workloadBytes, unfinishedBytes, unauthenticatedBytes = 12 << 20, 6 << 20, 256 << 10

// workloadLimit returns the limit of a workload that may have that many connections.
func workloadLimit(bytes, connections int) int { return max(bytes, bytes/16*connections) }

// collectUnauthenticated reports the connections of l.
func collectUnauthenticated(l *connlimit.Listener) func(emitFunc) {
	return func(emit emitFunc) {
		open, refused := l.Numbers()
		emit("ashore_unauthenticated_connections",
			"Connections with TLS whose clients have not authenticated as a workload.", float64(open))
		emit("ashore_unauthenticated_connections_refused_total",
			"Connections with TLS that were refused because too many clients had not authenticated.", float64(refused))
	}
}

// connLimiter limits the connections of each workload, and the memory of their incomplete requests.
// Safe for concurrent use; all fields are immutable.
type connLimiter struct {
	most    int // connections of one workload
	limiter *connlimit.Limiter[*unfinished.Budget]
	refused *prometheus.CounterVec
	log     *ratelimit.Logger
}

// client identifies the workload at the other end of a connection.
type client struct {
	id     spiffe.ID
	key    string // xds.QuotaKey
	source netip.Prefix
}

// Reasons of refusals, for the metric.
const tooManyConnections, tooMuchUnfinished = "connections", "unfinished requests"

// newConnLimiter returns a limiter that allows each workload most connections. It returns an error
// if a metric is registered already.
func newConnLimiter(most int, r prometheus.Registerer, log hclog.Logger) (*connLimiter, error) {
	l := &connLimiter{most: most, log: ratelimit.NewLogger(log),
		limiter: connlimit.NewLimiter(math.MaxInt, most, func() *unfinished.Budget {
			return unfinished.NewBudget(workloadLimit(unfinishedBytes, most))
		}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "ashore_connections_refused_total",
			Help: "Connections refused or closed because their workload exceeded a limit."}, []string{"reason"})}
	for _, reason := range []string{tooManyConnections, tooMuchUnfinished} {
		l.refused.WithLabelValues(reason)
	}
	return l, r.Register(l.refused)
}

// note counts and logs a refusal.
func (l *connLimiter) note(c client, reason string, why error) {
	l.refused.WithLabelValues(reason).Inc()
	l.log.Log(hclog.Warn, c.key, "connection refused: its workload has reached a limit",
		"identity", c.id, "from", c.source, "error", why)
}

// limitedTLS is TLS that applies the limits of a workload once its client has authenticated.
type limitedTLS struct {
	credentials.TransportCredentials
	// verify returns the identity of a certificate chain.
	verify  func(chain []*x509.Certificate, now time.Time) (spiffe.ID, error)
	limiter *connLimiter
}

// refusedConn is the AuthInfo of a connection beyond the limit.
type refusedConn struct {
	credentials.AuthInfo
	why error
}

// ServerHandshake implements credentials.TransportCredentials.
func (t limitedTLS) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := t.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return conn, info, err
	}
	c, authenticated := t.authenticate(raw, info)
	if !authenticated {
		conn = closeAfter(conn, unauthenticatedTime)
		return unfinished.NewConn(conn, unfinished.NewBudget(unauthenticatedBytes), func() {}), info, nil
	}
	budget, leave, ok := t.limiter.limiter.Enter(c.key)
	if !ok {
		err := fmt.Errorf("this workload has %d connections, no more are served "+
			"(setting xds.workloadConnections of the control plane)", t.limiter.most)
		t.limiter.note(c, tooManyConnections, err)
		conn = closeAfter(conn, refusalTime)
		return unfinished.NewConn(conn, unfinished.NewBudget(unauthenticatedBytes), func() {}), refusedConn{info,
			err}, nil
	}
	if l, ok := raw.(*connlimit.Conn); ok {
		l.Leave()
	}
	exceeded := func() { t.limiter.note(c, tooMuchUnfinished, unfinished.ErrTooMuch) }
	return unfinished.NewConn(connlimit.NewConn(conn, leave), budget, exceeded), info, nil
}

// authenticate returns the workload of a connection whose handshake is done; false if its client
// has no valid certificate of a workload.
func (t limitedTLS) authenticate(raw net.Conn, info credentials.AuthInfo) (client, bool) {
	tls, ok := info.(credentials.TLSInfo)
	if !ok || len(tls.State.PeerCertificates) == 0 {
		return client{}, false
	}
	chain := tls.State.PeerCertificates
	id, err := t.verify(chain, time.Now())
	if err != nil {
		return client{}, false
	}
	source := connlimit.Source(raw.RemoteAddr().String())
	return client{id, xds.QuotaKey(id, ca.WorkloadName(chain[0]), source), source}, true
}

// Clone implements credentials.TransportCredentials.
func (t limitedTLS) Clone() credentials.TransportCredentials {
	t.TransportCredentials = t.TransportCredentials.Clone()
	return t
}

// closeAfter closes a connection after d, unless it is closed before.
func closeAfter(conn net.Conn, d time.Duration) net.Conn {
	timer := time.AfterFunc(d, func() { _ = conn.Close() }) // its server notices
	return connlimit.NewConn(conn, func() { timer.Stop() })
}

// refuse answers calls on connections beyond the limit.
func refuse(ctx context.Context, _ *tap.Info) (context.Context, error) {
	if p, ok := peer.FromContext(ctx); ok {
		if c, ok := p.AuthInfo.(refusedConn); ok {
			return nil, status.Error(codes.ResourceExhausted, c.why.Error())
		}
	}
	return ctx, nil
}
