package main

import (
	"strings"
	"testing"

	"github.com/ashore-mesh/ashore/internal/admin"
)

const denyFile = `apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: deny, namespace: shop}
spec:
  action: DENY
  rules:
  - from:
    - source: {principals: [cluster.local/ns/shop/sa/web, cluster.local/ns/shop/sa/wbe]}
`

// A policy that denies a caller that does not exist is a problem.
func TestUnknownPrincipals(t *testing.T) {
	t.Parallel()
	s := newSecureSite(t)
	s.put(t, "deny.yaml", denyFile)
	s.start(t)
	s.joined(t)
	problems, err := admin.NewClient(s.socket).Problems(t.Context())
	if err != nil || len(problems) != 1 || !strings.HasSuffix(problems[0].File, "deny.yaml") ||
		problems[0].Field != "spec.rules[0].from[0].source.principals[1]" ||
		!strings.Contains(problems[0].Text, "did you mean cluster.local/ns/shop/sa/web?") {
		t.Errorf("problems %v, error %v", problems, err)
	}
}
