package server

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/ashore-mesh/ashore/ca"
	"github.com/ashore-mesh/ashore/internal/connlimit"
	"github.com/ashore-mesh/ashore/internal/ratelimit"
	"github.com/ashore-mesh/ashore/internal/spiffe"
	"github.com/ashore-mesh/ashore/internal/unfinished"
	"github.com/ashore-mesh/ashore/xds"
)

const (
	// maxUnauthenticated limits the connections whose clients have not authenticated, some 64 KB
	// each. It is large enough for a fleet that connects at once.
	maxUnauthenticated = 8192
	// sourceShare is the part of maxUnauthenticated, 1/8, that one source address may use.
	sourceShare = 8
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

// limitUnauthenticated limits the connections of l whose clients have not authenticated.
// It returns an error if a metric is registered already.
func limitUnauthenticated(l net.Listener, r prometheus.Registerer) (*connlimit.Listener, error) {
	total := min(maxUnauthenticated, openFiles()/2)
	out := connlimit.New(l, total, max(total/sourceShare, 1))
	return out, errors.Join(
		r.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "ashore_unauthenticated_connections",
			Help: "Connections with TLS whose clients have not authenticated as a workload."},
			func() float64 { open, _ := out.Numbers(); return float64(open) })),
		r.Register(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "ashore_unauthenticated_connections_refused_total",
			Help: "Connections with TLS that were refused because too many clients had not authenticated."},
			func() float64 { _, refused := out.Numbers(); return float64(refused) })))
}

// openFiles returns how many files and connections this process may have open.
func openFiles() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil || limit.Cur > 1<<20 {
		return 1 << 20
	}
	return int(limit.Cur)
}

// connLimiter limits the connections of each workload, and the memory of their incomplete requests.
// Safe for concurrent use.
type connLimiter struct {
	most    int                    // connections of one workload; immutable
	refused *prometheus.CounterVec // immutable
	log     *ratelimit.Logger      // immutable

	mu        sync.Mutex
	workloads map[string]*workloadConns // guarded by mu; by xds.QuotaKey
}

// workloadConns are the connections of one workload.
type workloadConns struct {
	count      int // guarded by connLimiter.mu
	unfinished *unfinished.Budget
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
	l := &connLimiter{most: most, log: ratelimit.NewLogger(log), workloads: map[string]*workloadConns{},
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "ashore_connections_refused_total",
			Help: "Connections refused or closed because their workload exceeded a limit."}, []string{"reason"})}
	for _, reason := range []string{tooManyConnections, tooMuchUnfinished} {
		l.refused.WithLabelValues(reason)
	}
	return l, r.Register(l.refused)
}

// enter counts a connection, and returns the memory limit of the workload's incomplete requests. It
// returns an error, and does not count the connection, if there are too many.
func (l *connLimiter) enter(c client) (*unfinished.Budget, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.workloads[c.key]
	if w == nil {
		w = &workloadConns{unfinished: unfinished.NewBudget(workloadLimit(unfinishedBytes, l.most))}
		l.workloads[c.key] = w
	}
	if w.count >= l.most {
		return nil, fmt.Errorf("this workload has %d connections, no more are served "+
			"(setting xds.workloadConnections of the control plane)", l.most)
	}
	w.count++
	return w.unfinished, nil
}

// leave ends the count of a connection that entered.
func (l *connLimiter) leave(c client) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.workloads[c.key]
	if w.count--; w.count == 0 {
		delete(l.workloads, c.key)
	}
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
	budget, err := t.limiter.enter(c)
	if err != nil {
		t.limiter.note(c, tooManyConnections, err)
		conn = closeAfter(conn, refusalTime)
		return unfinished.NewConn(conn, unfinished.NewBudget(unauthenticatedBytes), func() {}), refusedConn{info,
			err}, nil
	}
	if l, ok := raw.(*connlimit.Conn); ok {
		l.Leave()
	}
	conn = &releasingConn{Conn: conn, release: sync.OnceFunc(func() { t.limiter.leave(c) })}
	exceeded := func() { t.limiter.note(c, tooMuchUnfinished, unfinished.ErrTooMuch) }
	return unfinished.NewConn(conn, budget, exceeded), info, nil
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

// releasingConn calls release when it is closed.
type releasingConn struct {
	net.Conn
	release func()
}

// Close implements net.Conn.
func (c *releasingConn) Close() error {
	c.release()
	return c.Conn.Close()
}

// closeAfter closes a connection after d, unless it is closed before.
func closeAfter(conn net.Conn, d time.Duration) net.Conn {
	timer := time.AfterFunc(d, func() { _ = conn.Close() }) // its server notices
	return &releasingConn{Conn: conn, release: func() { timer.Stop() }}
}

// refusals returns the interceptors that answer calls on connections beyond the limit.
func refusals() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(func(
			ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler,
		) (any, error) {
			if err := refusal(ctx); err != nil {
				return nil, err
			}
			return next(ctx, req)
		}),
		grpc.ChainStreamInterceptor(func(
			srv any, st grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler,
		) error {
			if err := refusal(st.Context()); err != nil {
				return err
			}
			return next(srv, st)
		}),
	}
}

// refusal returns why a call is refused, or nil.
func refusal(ctx context.Context) error {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}
	if c, ok := p.AuthInfo.(refusedConn); ok {
		return status.Error(codes.ResourceExhausted, c.why.Error())
	}
	return nil
}
