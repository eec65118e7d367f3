package gen_test

import (
	"net/netip"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ashore-mesh/ashore/internal/revoked"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/xds/gen"
)

// Agents of workloads with an identity are told where revoked workloads were, and anew only when that changes.
func TestRevokedPeers(t *testing.T) {
	t.Parallel()
	g := gen.New()
	scope := func(identity bool, trust *push.Trust) *push.Scope {
		return &push.Scope{Facets: push.Facets{Identity: identity}, Trust: trust}
	}
	peers := []revoked.Peer{{Address: netip.MustParseAddr("10.0.0.7"), Epoch: 1}}
	told := &push.Trust{ID: "a", Epoch: 1, Peers: peers}
	for name, sc := range map[string]*push.Scope{"no authority": scope(true, nil), "nobody revoked": scope(true, &push.Trust{ID: "a"}), "no identity": scope(false, told)} {
		if n := g.Set(revoked.Type, sc).Len(); n != 0 {
			t.Errorf("%s: %d resources", name, n)
		}
	}
	one := g.Set(revoked.Type, scope(true, told))
	r := one.Get(revoked.Name)
	if one.Len() != 1 || r == nil {
		t.Fatalf("%d resources", one.Len())
	}
	var wrapped anypb.Any
	if err := proto.Unmarshal(r.Any(), &wrapped); err != nil || wrapped.TypeUrl != revoked.Type {
		t.Fatalf("type %s, %v", wrapped.TypeUrl, err)
	}
	if got, err := revoked.Decode(wrapped.Value); err != nil || !slices.Equal(got, peers) {
		t.Errorf("got %v, %v, want %v", got, err, peers)
	}
	if g.Set(revoked.Type, scope(true, &push.Trust{ID: "b", Epoch: 1, Peers: slices.Clone(peers)})) != one {
		t.Error("other roots send the addresses anew")
	}
	if g.Set(revoked.Type, scope(true, &push.Trust{ID: "a", Epoch: 2, Peers: []revoked.Peer{{Address: peers[0].Address, Epoch: 2}}})) == one {
		t.Error("another revocation is the same resource")
	}
}
