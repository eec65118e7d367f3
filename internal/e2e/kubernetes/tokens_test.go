package kubernetes

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/keyutil"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/e2e/harness"
)

// expired returns a token with the claims of another that ended a minute ago. The API server issues
// none that ends within 10 minutes, so the test signs it with the API server's key.
func (c *cluster) expired(token string) string {
	c.t.Helper()
	key, err := keyutil.PrivateKeyFromFile(filepath.Join(filepath.Dir(c.Admin), "key.pem"))
	if err != nil {
		c.t.Fatal(err)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: key}, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	parsed, err := jwt.ParseSigned(token, []jose.SignatureAlgorithm{jose.ES256})
	if err != nil {
		c.t.Fatal(err)
	}
	claims := map[string]any{}
	if err := parsed.UnsafeClaimsWithoutVerification(&claims); err != nil {
		c.t.Fatal(err)
	}
	claims["exp"] = time.Now().Add(-time.Minute).Unix()
	out, err := jwt.Signed(signer).Claims(claims).Serialize()
	if err != nil {
		c.t.Fatal(err)
	}
	return out
}

// ofDeletedPod returns a token that was good until its Pod, the only one of a Deployment, was deleted.
func (c *cluster) ofDeletedPod(deployment string) string {
	c.t.Helper()
	p := c.pod("shop/" + deployment + "-")
	token := c.podToken(p, deployment, "istio-ca")
	review := func() authenticationv1.TokenReviewStatus {
		c.t.Helper()
		r, err := c.client.AuthenticationV1().TokenReviews().Create(context.Background(), &authenticationv1.TokenReview{
			Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: []string{"istio-ca"}}}, metav1.CreateOptions{})
		if err != nil {
			c.t.Fatal(err)
		}
		return r.Status
	}
	if s := review(); !s.Authenticated {
		c.t.Fatalf("the token of %s is not good: %s", p.name, s.Error)
	}
	c.scale("shop", deployment, 0)
	harness.Eventually(c.t, "the API server refuses the token of "+p.name, func() error {
		if review().Authenticated {
			return errors.New("it is still good")
		}
		return nil
	})
	return token
}

// A Pod with a token that is not valid does not join, and the audit log has the API server's reason. A
// good token joins afterwards.
func TestTokens(t *testing.T) {
	t.Parallel()
	hub := newHub(t)
	c := startCluster(t, hub)
	c.apply(secured("shop", "web") + "---" + secured("shop", "old"))
	m := harness.New(t, nil, harness.At(hub), harness.Secure("attestors: {kubernetes: [kubernetes]}"),
		harness.Sources(source("kubernetes", c.Admin)))
	root, web := c.root("shop"), c.pod("shop/web-")
	good := c.podToken(web, "web", "istio-ca")
	for _, tc := range []struct{ name, token, reason string }{
		{"another audience", c.podToken(web, "web", "vault"),
			`token audiences ["vault"] is invalid for the target audiences ["istio-ca"]`},
		{"expired", c.expired(good), "service account token has expired"},
		{"deleted Pod", c.ofDeletedPod("old"), "service account token has been invalidated"},
		{name: "good", token: good},
	} {
		out, err := web.ns.Program(append(c.joinLine(web, "web", tc.token, root, m.TLS()), "--no-run")...).CombinedOutput()
		joined := 0
		switch {
		case tc.reason == "":
			joined = 1
			if err != nil {
				t.Errorf("%s: %v\n%s", tc.name, err, out)
			}
		case err == nil || !strings.Contains(string(out), "the token is not accepted: "):
			t.Errorf("%s: %v, want that the token is not accepted\n%s", tc.name, err, out)
		default:
			m.Audited("certificate.refuse",
				"cluster kubernetes: it does not accept the token: [invalid bearer token, "+tc.reason)
		}
		list, err := admin.Send(t.Context(), m.Admin, admin.CallWorkloads, admin.None{})
		if err != nil || len(list.Workloads) != joined {
			t.Errorf("%s: joined are %+v, error %v, want %d", tc.name, list.Workloads, err, joined)
		}
	}
}
