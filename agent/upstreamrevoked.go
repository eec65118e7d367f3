package agent

import (
	"google.golang.org/grpc/codes"

	"github.com/ashore-mesh/ashore/internal/revoked"
	"github.com/ashore-mesh/ashore/xds/ads"
)

// askRevoked asks for the addresses of workloads that were revoked lately. None are claimed: who takes them compares.
func (l *upstreamLink) askRevoked() {
	i := ads.NewInterest(revoked.Type, nil)
	i.Want(true, nil)
	l.up.interests = append(l.up.interests, i)
}

// hearRevoked hands on the addresses of workloads that were revoked lately, and acknowledges them. A response without any
// says that there are none.
func (p *proxy) hearRevoked(l *upstreamLink, reply *ads.Reply) {
	var peers []revoked.Peer
	var rejected *ads.Rejection
	for _, it := range reply.Items {
		found, err := revoked.Decode(it.Body)
		if err != nil {
			rejected = &ads.Rejection{Code: int32(codes.InvalidArgument), Message: err.Error()}
			p.log.Warn("addresses of revoked workloads are not taken: raw TCP connections with them end when Envoy has drained them", "error", err)
			break
		}
		peers = append(peers, found...)
	}
	p.locked(func() {
		if rejected == nil {
			p.cfg.SetRevoked(peers)
		}
		if i := l.up.find(revoked.Type); i != nil {
			i.Take(reply)
			i.Answer(rejected)
		}
	})
}
