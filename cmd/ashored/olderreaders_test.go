package main

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/spiffe"
	"github.com/ashore-mesh/ashore/mcp"
)

// Who reads by the older protocol is shown as others are, by where he is while he has no name; collections that are always empty
// are not.
func TestOlderReaders(t *testing.T) {
	t.Parallel()
	at := time.Unix(1, 0)
	const name, old = "istio/networking/v1alpha3/gateways", "istio/mesh/v1alpha1/MeshConfig"
	got := olderReaders([]mcp.ReaderStatus{
		{Peer: "10.0.0.1:2", Connected: at},
		{ID: "pilot", Peer: "10.0.0.1:3", Connected: at, Who: spiffe.ID{TrustDomain: "td", Namespace: "a", ServiceAccount: "b"}, Expires: at.Add(1), Collections: []mcp.CollectionStatus{
			{Collection: old},
			{Collection: name, Kind: config.Gateway, Incremental: true, Resources: 2, AcknowledgedAt: at.Add(2), InFlight: true, Refusals: 3, Refusal: "no", RefusedAt: at.Add(3)},
		}},
	})
	want := []admin.ProxyStatus{
		{ID: "10.0.0.1:2", Node: "10.0.0.1:2", Kind: "sink", Reader: true, Peer: "10.0.0.1:2", Connected: at, Types: []admin.TypeStatus{}},
		{ID: "pilot", Node: "pilot", Kind: "sink", Reader: true, Peer: "10.0.0.1:3", Connected: at, Identity: "spiffe://td/ns/a/sa/b", Expires: at.Add(1), Delta: true, Types: []admin.TypeStatus{
			{Type: name, Objects: "Gateway", Everything: true, Resources: 2, AcknowledgedAt: at.Add(2), InFlight: 1, Rejections: 3, Rejected: []admin.Rejection{{Time: at.Add(3), Error: "no"}}},
		}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
