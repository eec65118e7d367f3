package ads_test

import (
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ashore-mesh/ashore/xds/ads"
)

// A request is what the protobuf library reads.
func TestAskEncode(t *testing.T) {
	t.Parallel()
	node, err := proto.Marshal(&discoveryv3.DeltaDiscoveryRequest{})
	if err != nil {
		t.Fatal(err)
	}
	a := ads.Ask{TypeURL: clusterType, Node: append(node, 0x0a, 1, 'n'), Subscribe: []string{"*", "a"},
		Unsubscribe: []string{"b"},
		Claims:      map[string]string{"c": "1", "d": ""}, Nonce: "n1", Rejected: &ads.Rejection{Code: 3, Message: "bad"}}
	var got discoveryv3.DeltaDiscoveryRequest
	if err := proto.Unmarshal(a.Encode(), &got); err != nil {
		t.Fatal(err)
	}
	if got.Node.GetId() != "n" {
		t.Errorf("node %v", got.Node)
	}
	got.Node = nil
	want := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: clusterType, ResourceNamesSubscribe: a.Subscribe,
		ResourceNamesUnsubscribe: a.Unsubscribe,
		InitialResourceVersions:  a.Claims, ResponseNonce: "n1", ErrorDetail: &rpcstatus.Status{Code: 3, Message: "bad"}}
	if d := cmp.Diff(want, &got, protocmp.Transform()); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// A response is read as the protobuf library reads it.
func TestReadReply(t *testing.T) {
	t.Parallel()
	good := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: clusterType, Nonce: "n1", SystemVersionInfo: "s",
		RemovedResources: []string{"x", "y"},
		Resources: []*discoveryv3.Resource{
			{Name: "a", Version: "1", Aliases: []string{"b"}, Resource: &anypb.Any{TypeUrl: clusterType, Value: []byte("body")}},
			{Name: "c"},
		}}
	raw, err := proto.Marshal(good)
	if err != nil {
		t.Fatal(err)
	}
	got, err := ads.ReadReply(raw, false)
	if err != nil {
		t.Fatal(err)
	}
	want := &ads.Reply{TypeURL: clusterType, Nonce: "n1", Removed: []string{"x", "y"},
		Items: []ads.Item{{Name: "a", Version: "1", TypeURL: clusterType, Body: []byte("body")}, {Name: "c"}}}
	if d := cmp.Diff(want, got, cmpopts.IgnoreFields(ads.Item{}, "Raw")); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	if again, err := ads.ReadReply(got.Encode(), false); err != nil || !cmp.Equal(got, again) {
		t.Errorf("encoded and read again: %+v, %v; want %+v", again, err, got)
	}
	for name, m := range map[string]*discoveryv3.DeltaDiscoveryResponse{
		"no type":  {Nonce: "n"},
		"no nonce": {TypeUrl: clusterType},
	} {
		raw, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ads.ReadReply(raw, false); err == nil {
			t.Errorf("%s: it is accepted", name)
		}
	}
}
