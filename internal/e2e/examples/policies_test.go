package examples

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/e2e/harness"
)

// Who calls is proven by mutual TLS and tokens, and gets what the policies say; they explain why;
// an edit lets another caller in.
func TestPolicies(t *testing.T) {
	t.Parallel()
	e := openIn(t, harness.New(t, nil, harness.Secure("")), "policies")
	e.backend("orders", "127.0.0.42:9080")
	orders, web, batch := e.proxy("orders"), e.proxy("web").Client(8000), e.proxy("batch").Client(8000)
	token := "Bearer " + strings.TrimSpace(e.read(filepath.Join(e.folder, "ann.jwt")))
	request := func(method, path, bearer string) harness.Request {
		r := harness.Request{Host: "orders.internal", Method: method, Path: path, Header: map[string]string{}}
		if bearer != "" {
			r.Header["Authorization"] = bearer
		}
		return r
	}

	web.Want(t, "web reads", request("GET", "/orders", ""), harness.From("orders"))
	if _, err := orders.Client(8080).Do(request("GET", "/orders", "")); err == nil {
		t.Error("a caller without a certificate got an answer")
	}
	batch.Want(t, "batch may not", request("GET", "/orders", ""), harness.Status(http.StatusForbidden))
	web.Want(t, "web may not make an order for nobody", request("POST", "/orders", ""),
		harness.Status(http.StatusForbidden))
	web.Want(t, "web makes an order for a clerk", request("POST", "/orders", token), func(a harness.Answer) error {
		if got := a.Seen.Header.Get("X-Person"); got != "ann" {
			return fmt.Errorf("orders was told that %q asks, want ann; status %d", got, a.Status)
		}
		return harness.From("orders")(a)
	})
	web.Want(t, "a token of nobody", request("GET", "/orders", "Bearer x.y.z"), harness.Status(http.StatusUnauthorized))
	web.Want(t, "what a policy denies", request("GET", "/orders/archive/7", ""), harness.Status(http.StatusForbidden))

	for _, q := range []struct{ from, path, verdict, reason string }{
		{"shop/web", "/orders", "allowed", "shop/orders"},
		{"shop/web", "/orders/archive/7", "denied", "shop/archive"},
		{"shop/batch", "/orders", "denied", ""},
	} {
		got, err := admin.Send(t.Context(), e.Admin, admin.CallExplain, admin.ExplainRequest{From: q.from, To: "shop/orders", Method: "GET",
			Path: q.path})
		if err != nil || got.Verdict != q.verdict || !strings.Contains(got.Parts[0].Reason, q.reason) {
			t.Errorf("why %s %s: %q %v %v, want %s by %q", q.from, q.path, got.Verdict, got.Parts, err, q.verdict,
				q.reason)
		}
	}

	text := e.read(filepath.Join(e.folder, "config", "may.yaml"))
	wider := strings.ReplaceAll(text, "principals: [cluster.local/ns/shop/sa/web]}",
		`principals: ["cluster.local/ns/shop/sa/*"]}`)
	if wider == text {
		t.Fatal("the edit of README.md finds nothing to replace in may.yaml")
	}
	e.Write("may.yaml", wider)
	batch.Want(t, "batch, once it is let in", request("GET", "/orders", ""), harness.From("orders"))
}
