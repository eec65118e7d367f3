package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/internal/spiffe"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/xds"
)

const explainConfig = `
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: deny, namespace: shop}
spec: {action: DENY, selector: {matchLabels: {app: web}}, rules: [{from: [{source: {namespaces: [bad]}}]}]}
`

// What policies say reaches operators with the policy that decides; who or what nobody knows is said so.
func TestExplainer(t *testing.T) {
	t.Parallel()
	b := newBackend(t, explainConfig)
	web := push.Node{ID: "web-1.shop", Namespace: "shop", Labels: new(intern.Lists[push.Label]).Of([]push.Label{{Key: "app", Value: "web"}}), Identity: true}
	bad := spiffe.ID{TrustDomain: "cluster.local", Namespace: "bad", ServiceAccount: "a"}
	e := explainer{context: b.context, proxies: func() []xds.ProxyStatus {
		return []xds.ProxyStatus{
			{ID: "sidecar~10.0.0.1~web-1.shop~x", Node: web},
			{ID: "sidecar~10.0.0.2~a-1.bad~x", Node: push.Node{ID: "a-1.bad", Namespace: "bad"}, Who: xds.Peer{Identity: bad}},
		}
	}}
	for _, tc := range []struct {
		name, from, to, verdict, reason string
		steps                           int
		is                              error
	}{
		{"denied", "bad/a", "web-1.shop", "denied", "rule 0 of AuthorizationPolicy shop/deny denies it", 1, nil},
		{"a proxy asks", "a-1.bad", "sidecar~10.0.0.1~web-1.shop~x", "denied", "shop/deny", 1, nil},
		{"allowed", "shop/a", "web-1.shop", "allowed", "no policy denies it", 1, nil},
		{"no caller", "web", "web-1.shop", "", "write shop/web", 0, admin.ErrInvalid},
		{"no target", "shop/a", "shop/nobody", "", "web.example:80", 0, admin.ErrNotFound},
	} {
		got, err := e.Explain(t.Context(), admin.ExplainRequest{From: tc.from, To: tc.to})
		switch {
		case tc.is != nil:
			if !errors.Is(err, tc.is) || !strings.Contains(err.Error(), tc.reason) {
				t.Errorf("%s: error %v, want %v with %q", tc.name, err, tc.is, tc.reason)
			}
		case err != nil || got.Verdict != tc.verdict || !strings.Contains(got.Reason, tc.reason) || len(got.Steps) != tc.steps:
			t.Errorf("%s: got %+v, %v", tc.name, got, err)
		}
	}
	got, err := e.Explain(t.Context(), admin.ExplainRequest{From: "bad/a", To: "web-1.shop"})
	if err != nil || !got.Steps[0].Decides || !got.Steps[0].Matched || got.Steps[0].Origin != "a.yaml:2" || len(got.Notes) != 0 {
		t.Errorf("the step is %+v, notes %v, %v", got.Steps, got.Notes, err)
	}
	if _, err := (explainer{context: func() *push.Context { return nil }}).Explain(t.Context(), admin.ExplainRequest{}); !errors.Is(err, admin.ErrConflict) {
		t.Errorf("without configuration: %v", err)
	}
}

// Where the workloads of a service differ, that is said, and of which one the steps are.
func TestExplanationOfSeveral(t *testing.T) {
	t.Parallel()
	one := push.Explained{Target: push.Target{Namespace: "shop", Workload: "a", Port: 80, MutualTLS: true}, Judgement: push.Judgement{Verdict: push.Allowed, Reason: "x"}}
	two := one
	two.Workload, two.MutualTLS, two.Verdict, two.Reason = "b", false, push.Denied, "y"
	id := spiffe.ID{TrustDomain: "td", Namespace: "a", ServiceAccount: "b"}
	got := explanation(id, "web", []push.Explained{one, two})
	if got.Verdict != "depends" || !strings.Contains(got.Reason, "shop/a:80") || len(got.Notes) != 3 || got.Notes[2] != "shop/b:80: denied: y" {
		t.Errorf("got %+v", got)
	}
	if got := explanation(spiffe.ID{}, "web", []push.Explained{one, one}); got.Verdict != "allowed" || got.From != "anonymous" || got.Notes != nil {
		t.Errorf("of two that are alike: %+v", got)
	}
}
