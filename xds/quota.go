package xds

import (
	"net/netip"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ashore-mesh/ashore/internal/connlimit"
	"github.com/ashore-mesh/ashore/internal/spiffe"
)

// QuotaKey returns the key by which quotas are counted: the workload that the certificate names. If
// it names none, all workloads of the identity that connect from one address share a quota.
func QuotaKey(id spiffe.ID, workload string, from netip.Prefix) string {
	account := id.Namespace + "/" + id.ServiceAccount
	if workload != "" {
		return account + " workload " + workload
	}
	return account + " address " + from.String()
}

// quotas limit the streams and memory of each workload, over all of its connections and
// certificates. Safe for concurrent use.
type quotas struct {
	streams, bytes int                // immutable: limits of one workload
	refused        prometheus.Counter // immutable

	mu   sync.Mutex
	held map[string]*usage // guarded by mu: by QuotaKey
}

// usage is what the streams of one workload use.
type usage struct{ streams, bytes int }

// quota is the part of one stream in its workload's usage. A nil quota has no limits. Safe for
// concurrent use.
type quota struct {
	all  *quotas // immutable
	of   *usage  // guarded by all.mu
	key  string  // immutable
	held int     // guarded by all.mu
	left bool    // guarded by all.mu: the stream has ended
}

// enter counts a stream until it leaves. Errors: a status, if there are too many.
func (q *quotas) enter(key string) (*quota, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	u := q.held[key]
	if u == nil {
		u = &usage{}
		q.held[key] = u
	}
	if u.streams >= q.streams {
		return nil, status.Errorf(codes.ResourceExhausted,
			"this workload has %d streams, no more are served", q.streams)
	}
	u.streams++
	return &quota{all: q, of: u, key: key}, nil
}

// hold adds bytes, which may be negative. Errors: a status, if the workload uses too many; they are
// not added.
func (q *quota) hold(bytes int) error {
	if q == nil {
		return nil
	}
	q.all.mu.Lock()
	defer q.all.mu.Unlock()
	if q.left {
		return nil
	}
	if bytes > 0 && q.of.bytes+bytes > q.all.bytes {
		q.all.refused.Inc()
		return status.Errorf(codes.ResourceExhausted,
			"the requests and subscriptions of this workload take more than %d KiB on all of its streams: subscribe to fewer names", q.all.bytes>>10)
	}
	q.of.bytes += bytes
	q.held += bytes
	return nil
}

// leave is the end of the stream.
func (q *quota) leave() {
	if q == nil {
		return
	}
	q.all.mu.Lock()
	defer q.all.mu.Unlock()
	q.left = true
	q.of.bytes -= q.held
	if q.of.streams--; q.of.streams == 0 {
		delete(q.all.held, q.key)
	}
}

// quotaOf counts a stream of a peer from an address. Peers without a certificate have no quota: the
// operator who opens a listener without TLS trusts them. Errors: a status, if there are too many
// streams.
func (s *Server) quotaOf(who Peer, from string) (*quota, error) {
	if who.Identity == (spiffe.ID{}) {
		return nil, nil
	}
	return s.quotas.enter(QuotaKey(who.Identity, who.Workload, connlimit.Source(from)))
}
