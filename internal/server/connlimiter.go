package server

import (
	"crypto/x509"
	"errors"
	"math"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"google.golang.org/grpc/credentials"

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
	// after the handshake, unless a stream has a token. A machine that joins needs some milliseconds.
	unauthenticatedTime = 30 * time.Second
	// workloadConnections limits the connections of one workload, and its streams on all of them.
	workloadConnections = 16
	// workloadBytes limits the memory of one workload's requests and subscriptions, unfinishedBytes
	// that of its incomplete requests: the largest one fits. unauthenticatedBytes limits the
	// incomplete requests of an unauthenticated connection.
	workloadBytes, unfinishedBytes, unauthenticatedBytes = 12 << 20, 6 << 20, 256 << 10
)

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

// limitedTLS is TLS that limits the connections of each workload, and the memory of their
// incomplete requests. Safe for concurrent use; all fields but the connections are immutable.
type limitedTLS struct {
	credentials.TransportCredentials
	// verify returns the identity of a certificate chain.
	verify  func(chain []*x509.Certificate, now time.Time) (spiffe.ID, error)
	limiter *connlimit.Limiter[*unfinished.Budget]
	refused *prometheus.CounterVec
	log     *ratelimit.Logger
	// unauthenticated are the connections without a certificate: *unauthenticated by remote address.
	unauthenticated *sync.Map
}

// Reasons of refusals, for the metric.
const tooManyConnections, tooMuchUnfinished = "connections", "unfinished requests"

// newLimitedTLS returns TLS that allows each workload perWorkload connections.
func newLimitedTLS(tls credentials.TransportCredentials, perWorkload int,
	verify func([]*x509.Certificate, time.Time) (spiffe.ID, error), r prometheus.Registerer,
	log hclog.Logger) limitedTLS {
	budget := func() *unfinished.Budget { return unfinished.NewBudget(unfinishedBytes) }
	t := limitedTLS{TransportCredentials: tls, verify: verify, log: ratelimit.NewLogger(log), unauthenticated: &sync.Map{},
		limiter: connlimit.NewLimiter(math.MaxInt, perWorkload, budget),
		refused: promauto.With(r).NewCounterVec(prometheus.CounterOpts{Name: "ashore_connections_refused_total",
			Help: "Connections refused or closed because their workload exceeded a limit."}, []string{"reason"})}
	for _, reason := range []string{tooManyConnections, tooMuchUnfinished} {
		t.refused.WithLabelValues(reason)
	}
	return t
}

// ServerHandshake implements credentials.TransportCredentials. gRPC closes the connection if it
// returns an error.
func (t limitedTLS) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := t.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return conn, info, err
	}
	id, workload, authenticated := t.authenticate(info)
	if !authenticated {
		return t.await(raw, conn), info, nil
	}
	m, err := t.enter(id, workload, raw)
	if err != nil {
		return nil, nil, err
	}
	return unfinished.NewConn(connlimit.NewConn(conn, m.leave), m.budget, m.exceeded), info, nil
}

// membership is the place of a connection among those of its workload.
type membership struct {
	budget   *unfinished.Budget
	leave    func() // called when the connection is closed
	exceeded func() // called when it is closed because of the budget
}

// enter counts a connection as one of a workload. Errors: it has too many.
func (t limitedTLS) enter(id spiffe.ID, workload string, raw net.Conn) (membership, error) {
	source := connlimit.Source(raw.RemoteAddr().String())
	key := xds.QuotaKey(id, workload, source)
	refuse := func(reason string, err error) {
		t.refused.WithLabelValues(reason).Inc()
		t.log.Log(hclog.Warn, key, "connection refused: its workload has reached a limit",
			"identity", id, "from", source, "error", err)
	}
	budget, leave, ok := t.limiter.Enter(key)
	if !ok {
		err := errors.New("this workload has too many connections")
		refuse(tooManyConnections, err)
		return membership{}, err
	}
	if l, ok := raw.(*connlimit.Conn); ok {
		l.Leave()
	}
	return membership{budget, leave, func() { refuse(tooMuchUnfinished, unfinished.ErrTooMuch) }}, nil
}

// authenticate returns the identity and the name of the workload of a connection; false if its
// client has no valid certificate of a workload.
func (t limitedTLS) authenticate(info credentials.AuthInfo) (id spiffe.ID, workload string, ok bool) {
	tls, ok := info.(credentials.TLSInfo)
	if !ok || len(tls.State.PeerCertificates) == 0 {
		return id, "", false
	}
	chain := tls.State.PeerCertificates
	id, err := t.verify(chain, time.Now())
	return id, ca.WorkloadName(chain[0]), err == nil
}

// Clone implements credentials.TransportCredentials.
func (t limitedTLS) Clone() credentials.TransportCredentials {
	t.TransportCredentials = t.TransportCredentials.Clone()
	return t
}
