package gen

import (
	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/internal/memo"
	"github.com/ashore-mesh/ashore/internal/revoked"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// revokedPeers makes the resource that tells agents from where those spoke that were revoked lately.
type revokedPeers struct {
	peers  *intern.Lists[revoked.Peer]
	layers *memo.Func[revokedPeersIn, resource.Layer]
}

// revokedPeersIn is everything that the resource depends on.
type revokedPeersIn struct{ peers *intern.List[revoked.Peer] }

func newRevokedPeers() revokedPeers {
	return revokedPeers{peers: &intern.Lists[revoked.Peer]{}, layers: memo.New(buildRevokedPeers)}
}

// set is empty for a proxy without an identity, and when nobody was revoked lately.
func (r revokedPeers) set(sc *push.Scope) resource.Set {
	if !sc.Identity || sc.Trust == nil || len(sc.Trust.Peers) == 0 {
		return resource.Set{}
	}
	return resource.Set{Shared: r.layers.Get(revokedPeersIn{r.peers.Of(sc.Trust.Peers)})}
}

func buildRevokedPeers(in revokedPeersIn) *resource.Layer {
	r := resource.New(revoked.Type, revoked.Name, nil, func() []byte { return revoked.Encode(in.peers.Items()) })
	return resource.NewLayer([]*resource.Resource{r})
}
