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

// memory is what the streams of one workload use together. Safe for concurrent use.
type memory struct {
	most    int                // immutable: bytes
	refused prometheus.Counter // immutable

	mu   sync.Mutex
	used int // guarded by mu
}

// quota is the part of one stream in the memory of its workload. A nil quota has no limits. Safe for
// concurrent use.
type quota struct {
	*memory
	uncount func() // immutable: the stream no longer counts
	held    int    // guarded by mu
	left    bool   // guarded by mu: the stream has ended
}

// hold adds bytes, which may be negative. Errors: a status, if the workload uses too many; they are
// not added.
func (q *quota) hold(bytes int) error {
	if q == nil {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.left {
		return nil
	}
	if bytes > 0 && q.used+bytes > q.most {
		q.refused.Inc()
		return status.Errorf(codes.ResourceExhausted,
			"the requests and subscriptions of this workload take more than %d KiB on all of its streams: "+
				"subscribe to fewer names", q.most>>10)
	}
	q.used += bytes
	q.held += bytes
	return nil
}

// leave is the end of the stream.
func (q *quota) leave() {
	if q == nil {
		return
	}
	q.mu.Lock()
	q.left = true
	q.used -= q.held
	q.mu.Unlock()
	q.uncount()
}

// quotaOf counts a stream of a peer from an address. Peers without a certificate have no quota: the
// operator who opens a listener without TLS trusts them. Errors: a status, if there are too many
// streams.
func (s *Server) quotaOf(who Peer, from string) (*quota, error) {
	if who.Identity == (spiffe.ID{}) {
		return nil, nil
	}
	m, uncount, ok := s.workloads.Enter(QuotaKey(who.Identity, who.Workload, connlimit.Source(from)))
	if !ok {
		return nil, status.Errorf(codes.ResourceExhausted,
			"this workload has %d streams, no more are served", s.cfg.WorkloadStreams)
	}
	return &quota{memory: m, uncount: uncount}, nil
}
