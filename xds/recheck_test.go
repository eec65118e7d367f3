package xds

import (
	"crypto/x509"
	"fmt"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/internal/spiffe"
)

// How long a revocation takes until the streams of a fleet of 10,000 are looked through, of which
// one is revoked.
func BenchmarkRecheck(b *testing.B) {
	const fleet = 10_000
	revoked := spiffe.ID{TrustDomain: "cluster.local", Namespace: "shop", ServiceAccount: "w7"}
	s := &Server{log: hclog.NewNullLogger(), streams: map[*stream]struct{}{}, recheck: make(chan struct{}, 1),
		cfg: Config{
			Verify: func([]*x509.Certificate, time.Time) (spiffe.ID, error) { return revoked, nil },
			Revoked: func(id spiffe.ID, _ string) error {
				if id == revoked {
					return errUnauthenticated
				}
				return nil
			},
		}}
	for i := range fleet {
		id := spiffe.ID{TrustDomain: "cluster.local", Namespace: "shop", ServiceAccount: fmt.Sprint("w", i)}
		s.streams[&stream{cut: make(chan error, 1), who: Peer{Identity: id,
			chain: []*x509.Certificate{{}}}}] = struct{}{}
	}
	for b.Loop() {
		s.Recheck()
	}
}
