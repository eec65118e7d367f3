package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/feed"
)

const tokensFile = `apiVersion: security.istio.io/v1
kind: RequestAuthentication
metadata: {name: tokens, namespace: shop}
spec:
  jwtRules:
  - {issuer: https://issuer.example, jwksUri: "https://127.0.0.1:1/keys"}
  - {issuer: https://plain.example, jwksUri: "http://plain.example/keys"}
`

// Keys that are not fetched, here for their address or for they would come without TLS, are a
// problem that operators see.
func TestKeysProblem(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.put(t, "tokens.yaml", tokensFile)
	s.start(t)
	client := admin.NewClient(s.socket)
	s.until(t, "told", func() bool {
		problems, err := admin.Send(t.Context(), client, admin.CallProblems, admin.None{})
		told := func(url, setting string) bool {
			return slices.ContainsFunc(problems, func(p feed.Problem) bool {
				return p.Severity == feed.Error && p.Object == url && strings.Contains(p.Text, setting) &&
					strings.Contains(p.Text, "no token") && filepath.Base(p.File) == "tokens.yaml" && p.Line == 1 &&
					strings.Contains(p.Text, "RequestAuthentication shop/tokens needs them")
			})
		}
		return err == nil && told("https://127.0.0.1:1/keys", "fetch.allow") &&
			told("http://plain.example/keys", "want https")
	})
	if !strings.Contains(s.metricsText(t), "ashore_jwks_failing 2\n") {
		t.Error("the metrics do not count it")
	}
}

// So are those of the issuers in the settings.
func TestIssuerProblem(t *testing.T) {
	t.Parallel()
	s := newSecureSite(t)
	keys, settings := filepath.Join(s.dir, "keys.json"), filepath.Join(s.dir, "ashored.yaml")
	if err := os.WriteFile(settings,
		fmt.Appendf(nil, "attestors: {jwt: [{issuer: 'https://issuer.example', jwks: %q}]}\n",
			keys), 0o600); err != nil {
		t.Fatal(err)
	}
	s.more = append(s.more, "--config", settings)
	s.start(t)
	s.until(t, "told", func() bool {
		problems, err := admin.Send(t.Context(), admin.NewClient(s.socket), admin.CallProblems, admin.None{})
		return err == nil && slices.ContainsFunc(problems, func(p feed.Problem) bool {
			return p.Severity == feed.Error && p.Object == keys && strings.Contains(p.Text, "no token")
		})
	})
}
