package ca

import (
	"context"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// Calls to other services prove an identity with the tokens of issuers and clusters, until these
// expire. A join token proves none there.
func TestIdentify(t *testing.T) {
	t.Parallel()
	l, p := newLab(t, nil), newIDP(t)
	token := p.sign("a", good(map[string]any{"iss": "https://kubernetes"}))
	l.server.config.Reviewer = reviewer{token}
	l.server.config.JWT = l.newJWT(Issuer{Name: "https://idp", Keys: p.file})
	for name, tc := range map[string]struct {
		token, cluster, want string
		code                 codes.Code // of the error
	}{
		"of a cluster":    {token, "east", "spiffe://cluster.local/ns/shop/sa/web", codes.OK},
		"of an issuer":    {p.sign("a", good(nil)), "", "spiffe://cluster.local/ns/shop/sa/web", codes.OK},
		"unknown cluster": {token, "west", "", codes.Unauthenticated},
		"cluster away":    {token, "away", "", codes.Unavailable},
		"of a join":       {tokenPrefix + "abc", "", "", codes.Unknown},
		"without token":   {"", "", "", codes.Unknown},
	} {
		ctx := peer.NewContext(context.Background(), &peer.Peer{Addr: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 1}})
		ctx = metadata.NewIncomingContext(ctx, metadata.Pairs("authorization", "Bearer "+tc.token, clusterHeader, tc.cluster))
		id, expires, err := l.server.Identify(ctx)
		if tc.want == "" {
			if status.Code(err) != tc.code {
				t.Errorf("%s: got %v, error %v, want %s", name, id, err, tc.code)
			}
			continue
		}
		if err != nil || id.String() != tc.want {
			t.Errorf("%s: got %v, error %v, want %s", name, id, err, tc.want)
		}
		if left := expires.Sub(noon); left <= 0 || left > 24*time.Hour {
			t.Errorf("%s: expires %v", name, expires)
		}
	}
}
