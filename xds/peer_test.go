package xds

import (
	"testing"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

// wrapped is TLS as somebody else presents it.
type wrapped struct{ credentials.AuthInfo }

// A connection that is secured in a way that is not known here may not pass for one that is not
// secured, on which one may speak for every node.
func TestUnknownSecurity(t *testing.T) {
	t.Parallel()
	s := &Server{}
	for name, tc := range map[string]struct {
		info credentials.AuthInfo
		want bool // taken
	}{
		"none":               {nil, true},
		"TLS, nobody":        {credentials.TLSInfo{}, false},
		"TLS in other words": {wrapped{credentials.TLSInfo{}}, false},
	} {
		ctx := peer.NewContext(t.Context(), &peer.Peer{AuthInfo: tc.info})
		if who, err := s.identify(ctx); (err == nil) != tc.want || who.chain != nil {
			t.Errorf("%s: %+v, error %v", name, who, err)
		}
	}
}
