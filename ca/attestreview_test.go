package ca

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/spiffe"
)

// reviewer accepts tokens of the cluster "east" that begin with good.
type reviewer struct{ good string }

func (r reviewer) Review(_ context.Context, cluster, token string) (namespace, account string, refused, err error) {
	switch {
	case cluster == "away":
		return "", "", nil, errors.New("cluster away: connection refused")
	case cluster != "east":
		return "", "", &UnknownClusterError{cluster, []string{"east", "away"}}, nil
	case token != r.good:
		return "", "", errors.New("it does not accept the token"), nil
	}
	return "shop", "web", nil, nil
}

// A token that a cluster accepts proves an identity. Tokens of issuers in the settings are not sent to
// clusters. What cannot be reviewed now may be tried again.
func TestReview(t *testing.T) {
	t.Parallel()
	l, p := newLab(t, nil), newIDP(t)
	token := p.sign("a", good(map[string]any{"iss": "https://kubernetes"}))
	other := p.sign("a", good(map[string]any{"iss": "https://kubernetes", "sub": "x"}))
	ofIssuer := p.sign("a", good(map[string]any{"kubernetes.io": map[string]any{"namespace": "shop",
		"serviceaccount": map[string]any{"name": "api"}}}))
	l.server.config.Reviewer = reviewer{token}
	l.server.config.JWT = l.newJWT(Issuer{Name: "https://idp", Keys: p.file})
	l.serve()
	old := l.certificate(l.signer, "spiffe://cluster.local/ns/shop/sa/web", noon.Add(-900*time.Hour),
		noon.Add(-100*time.Hour), nil)
	large := strings.Repeat("a", maxJWT+1)
	const unproven = codes.Unauthenticated
	for name, tc := range map[string]struct {
		client client
		want   string // the service account, or
		code   codes.Code
		public string
		cause  string
	}{
		"accepted":                {client{token: token, cluster: "east"}, "web", 0, "", ""},
		"with an old certificate": {client{token: token, cluster: "east", cert: old}, "web", 0, "", ""},
		"of an issuer":            {client{token: ofIssuer, cluster: "away"}, "api", 0, "", ""},
		"refused":                 {client{token: other, cluster: "east"}, "", unproven, publicJWT, "review"},
		"unknown cluster": {client{token: token, cluster: "west"}, "", unproven, `the caller names the cluster ` +
			`"west", whose tokens are not accepted; want one of east, away; set workload.cluster of ashore-agent, or ` +
			"ISTIO_META_CLUSTER_ID of Istio's agent", "review"},
		"no cluster": {client{token: token}, "", unproven, "the caller does not name its cluster (header " +
			"clusterid), and there are several: east, away; set workload.cluster of ashore-agent", "review"},
		"no JWT": {client{token: "hello", cluster: "east"}, "", unproven, publicJWT, "jwt malformed"},
		"large":  {client{token: large, cluster: "east"}, "", unproven, publicJWT, "jwt too large"},
		"away":   {client{token: token, cluster: "away"}, "", codes.Unavailable, publicReview, "no review"},
		"away, with an old certificate": {client{token: token, cluster: "away", cert: old}, "", codes.Unavailable,
			publicReview, "no review"},
	} {
		cert, _, err := l.ask(tc.client)
		if tc.want != "" {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			} else if id, err := spiffe.Of(cert.Leaf); err != nil || id.ServiceAccount != tc.want {
				t.Errorf("%s: got %v, error %v", name, id, err)
			}
			continue
		}
		if err := wantRefused(err, tc.code, tc.public); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := l.audited(audit.CertificateRefuse, tc.cause); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
