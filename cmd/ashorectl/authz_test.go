package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ashore-mesh/ashore/internal/admin"
)

// Where workloads or ports differ, each has its own steps.
func TestExplanationOfParts(t *testing.T) {
	t.Parallel()
	step := []admin.ExplainStep{
		{Policy: "AuthorizationPolicy shop/a", Action: "ALLOW", Rule: -1, Why: "x"},
		{Policy: "AuthorizationPolicy shop/b", Action: "ALLOW", Depends: true, Decides: true, Why: "the path is unknown"},
		{Policy: "AuthorizationPolicy shop/c", Action: "ALLOW", Matched: true, Rule: 2},
	}
	got := explanationText(admin.Explanation{From: "anonymous", Verdict: "depends", Notes: []string{"Mind."}, Parts: []admin.ExplainPart{
		{At: []string{"shop/a:1", "shop/b:1"}, Call: "a connection", Verdict: "denied", Reason: "no", Steps: step},
		{At: []string{"shop/a:2"}, Call: "GET /", Verdict: "allowed", Reason: "yes"},
	}}, "shop/api")
	want := `DEPENDS: anonymous to shop/api

shop/a:1, shop/b:1, a connection: DENIED
no

   ACTION  POLICY                      MATCHES           WHY                  READ FROM
   ALLOW   AuthorizationPolicy shop/a  no                x                    -
>  ALLOW   AuthorizationPolicy shop/b  depends (rule 0)  the path is unknown  -
   ALLOW   AuthorizationPolicy shop/c  rule 2            -                    -

shop/a:2, GET /: ALLOWED
yes

Mind.
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
