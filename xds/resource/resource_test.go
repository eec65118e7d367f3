package resource_test

import (
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ashore-mesh/ashore/xds/resource"
)

const clusterType = "type.googleapis.com/envoy.config.cluster.v3.Cluster"

// What a resource lays out by hand is what the protobuf library would write.
func TestEntries(t *testing.T) {
	t.Parallel()
	for name, msg := range map[string]*clusterv3.Cluster{
		"empty": {},
		"some":  {Name: "outbound|80||a"},
		"large": {Name: string(make([]byte, 40_000))},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := resource.New(clusterType, "c-"+name, nil, func() []byte { return resource.Encode(msg) })

			body, err := anypb.New(msg)
			if err != nil {
				t.Fatal(err)
			}
			var delta discoveryv3.DeltaDiscoveryResponse
			if err := proto.Unmarshal(r.Entry(), &delta); err != nil {
				t.Fatal(err)
			}
			wantDelta := &discoveryv3.DeltaDiscoveryResponse{Resources: []*discoveryv3.Resource{{Name: "c-" + name,
				Version: r.Version(), Resource: body}}}
			if d := cmp.Diff(wantDelta, &delta, protocmp.Transform()); d != "" {
				t.Errorf("delta entry (-want +got):\n%s", d)
			}
			var state discoveryv3.DiscoveryResponse
			if err := proto.Unmarshal(r.StateEntry(), &state); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(&discoveryv3.DiscoveryResponse{Resources: []*anypb.Any{body}}, &state,
				protocmp.Transform()); d != "" {
				t.Errorf("state entry (-want +got):\n%s", d)
			}
			if d := cmp.Diff(body, r.Any(), protocmp.Transform()); d != "" {
				t.Errorf("any (-want +got):\n%s", d)
			}
			if got, want := string(r.Body()), string(resource.Encode(msg)); got != want {
				t.Errorf("body has %d bytes, want %d", len(got), len(want))
			}
		})
	}
}

// A name that stands in both layers of a set counts once, and the own one wins.
func TestSet(t *testing.T) {
	t.Parallel()
	res := func(name, body string) *resource.Resource {
		return resource.New(clusterType, name, nil, func() []byte { return []byte(body) })
	}
	s := resource.Set{
		Shared: resource.NewLayer([]*resource.Resource{res("b", "shared"), res("a", "shared"), res("a", "second")}),
		Own:    resource.NewLayer([]*resource.Resource{res("b", "own"), res("c", "own")}),
	}
	got := map[string]string{}
	for r := range s.All() {
		got[r.Name] = string(r.Body())
	}
	if d := cmp.Diff(map[string]string{"a": "shared", "b": "own", "c": "own"}, got); d != "" {
		t.Errorf("all (-want +got):\n%s", d)
	}
	if s.Len() != 3 {
		t.Errorf("Len is %d, want 3", s.Len())
	}
	if r := s.Get("b"); r == nil || string(r.Body()) != "own" {
		t.Errorf("Get(b) is %v, want the own one", r)
	}
	if r := s.Get("x"); r != nil {
		t.Errorf("Get(x) is %v, want nil", r)
	}
}
