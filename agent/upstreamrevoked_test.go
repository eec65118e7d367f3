package agent

import (
	"slices"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ashore-mesh/ashore/internal/revoked"
)

// The addresses of revoked workloads are asked for on each stream, handed on as they are told and acknowledged; what cannot
// be understood is refused, and nothing of it is handed on.
func TestUpstreamRevoked(t *testing.T) {
	t.Parallel()
	peers := peersOf(3, "10.0.0.7", "fd00::7")
	for _, tc := range []struct {
		name string
		body []byte
		good bool
	}{
		{"a list", revoked.Encode(peers), true},
		{"none", nil, true},
		{"nonsense", []byte{0xff}, false},
	} {
		c := startRecorder(t, func(r *discoveryv3.DeltaDiscoveryRequest) *discoveryv3.DeltaDiscoveryResponse {
			if r.GetTypeUrl() != revoked.Type || r.GetResponseNonce() != "" {
				return nil
			}
			return &discoveryv3.DeltaDiscoveryResponse{TypeUrl: revoked.Type, Nonce: "n1",
				Resources: []*discoveryv3.Resource{{Name: revoked.Name, Version: "1", Resource: &anypb.Any{TypeUrl: revoked.Type, Value: tc.body}}}}
		})
		told := make(chan []revoked.Peer, 4)
		startProxy(t, func(pc *proxyConfig) { pc.SetRevoked = func(p []revoked.Peer) { told <- p } }, c.address)
		asks := c.count(t, revoked.Type, 2)
		if len(asks[0].GetInitialResourceVersions()) > 0 || asks[1].GetResponseNonce() != "n1" || (asks[1].GetErrorDetail() == nil) != tc.good {
			t.Errorf("%s: asked %v, answered %v", tc.name, asks[0], asks[1])
		}
		switch {
		case !tc.good && len(told) > 0:
			t.Errorf("%s: told %v", tc.name, <-told)
		case tc.good && len(told) == 0:
			t.Errorf("%s: told nothing", tc.name)
		case tc.good:
			want := peers
			if tc.body == nil {
				want = nil
			}
			if got := <-told; !slices.Equal(got, want) {
				t.Errorf("%s: got %v, want %v", tc.name, got, want)
			}
		}
		c.cut()
		c.count(t, revoked.Type, 3)
	}
}
