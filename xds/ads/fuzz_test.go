package ads_test

import (
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"

	"github.com/ashore-mesh/ashore/xds/ads"
)

// No bytes make a subscription panic, or answer without end.
func FuzzReceive(f *testing.F) {
	for _, m := range []proto.Message{
		&discoveryv3.DeltaDiscoveryRequest{TypeUrl: clusterType, ResourceNamesSubscribe: []string{"*", "a"},
			ResponseNonce: "s-1", InitialResourceVersions: map[string]string{"a": "1"}},
		&discoveryv3.DeltaDiscoveryRequest{TypeUrl: clusterType, ResourceNamesUnsubscribe: []string{"*", "a"},
			ResponseNonce: "s-2", ErrorDetail: rejection("a is bad")},
		&discoveryv3.DiscoveryRequest{TypeUrl: clusterType, ResourceNames: []string{"a", "b"}, ResponseNonce: "s-1",
			VersionInfo: "1"},
		&discoveryv3.DiscoveryRequest{TypeUrl: clusterType, ResponseNonce: "s-1", ErrorDetail: rejection("b is bad")},
	} {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, b, true)
		f.Add(b, b, false)
	}
	to := set(clusterType, "a=1", "b=2", "c=3")
	f.Fuzz(func(t *testing.T, first, second []byte, states bool) {
		s := ads.NewSubscription(clusters(), states, ads.NewCache(), "s-")
		s.To = to
		for _, raw := range [][]byte{first, second, first} {
			r, err := ads.ReadRequest(raw, states)
			if err != nil {
				continue
			}
			if _, err := s.Receive(r, time.Time{}); err != nil {
				return
			}
			for i := 0; ; i++ {
				if r, _ := s.Next(time.Time{}); r == nil {
					break
				}
				if i > 3 {
					t.Fatal("it answers without end")
				}
			}
		}
	})
}
