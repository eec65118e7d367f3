package ads_test

import (
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/google/go-cmp/cmp"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ashore-mesh/ashore/xds/ads"
)

// What a client of state of the world says is what the generated messages say.
func TestStateAsk(t *testing.T) {
	t.Parallel()
	node := &corev3.Node{Id: "n"}
	raw, err := proto.Marshal(node)
	if err != nil {
		t.Fatal(err)
	}
	ask := ads.Ask{TypeURL: "t", Node: raw, Version: "v", Subscribe: []string{"a"}, Nonce: "n1",
		Rejected: &ads.Rejection{Code: 3, Message: "no"}}
	got := &discoveryv3.DiscoveryRequest{}
	if err := proto.Unmarshal(ask.EncodeState(), got); err != nil {
		t.Fatal(err)
	}
	want := &discoveryv3.DiscoveryRequest{TypeUrl: "t", Node: node, VersionInfo: "v", ResourceNames: []string{"a"},
		ResponseNonce: "n1",
		ErrorDetail:   &statuspb.Status{Code: 3, Message: "no"}}
	if d := cmp.Diff(want, got, protocmp.Transform()); d != "" {
		t.Errorf("request (-want +got):\n%s", d)
	}
}

// A response of state of the world is read as it was written; of a broken one nothing is used.
func TestReadStateReply(t *testing.T) {
	t.Parallel()
	raw, err := proto.Marshal(&discoveryv3.DiscoveryResponse{TypeUrl: "t", VersionInfo: "v", Nonce: "n",
		ControlPlane: &corev3.ControlPlane{Identifier: "x"},
		Resources:    []*anypb.Any{{TypeUrl: "r", Value: []byte("body")}, {TypeUrl: "r"}}})
	if err != nil {
		t.Fatal(err)
	}
	got, err := ads.ReadReply(raw, true)
	want := &ads.Reply{TypeURL: "t", Version: "v", Nonce: "n",
		Items: []ads.Item{{TypeURL: "r", Body: []byte("body")}, {TypeURL: "r"}}}
	if d := cmp.Diff(want, got); err != nil || d != "" {
		t.Errorf("error %v, reply (-want +got):\n%s", err, d)
	}
	for name, raw := range map[string][]byte{"cut off": raw[:len(raw)-1], "no type": nil} {
		if r, err := ads.ReadReply(raw, true); err == nil {
			t.Errorf("%s: read as %v", name, r)
		}
	}
}
