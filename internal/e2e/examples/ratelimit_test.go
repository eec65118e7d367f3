package examples

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/ashore-mesh/ashore/internal/e2e/harness"
)

// An EnvoyFilter limits one route of a gateway, and no other.
func TestRateLimit(t *testing.T) {
	t.Parallel()
	e := open(t, "ratelimit")
	shop := e.backend("shop", "127.0.0.81:8080")
	gateway := e.proxy("gateway").Client(8080)
	login := harness.Request{Host: "shop.example.com", Path: "/login"}

	gateway.Want(t, "logins are limited", login, func(a harness.Answer) error {
		if got := a.Header.Get("Retry-After"); a.Status != http.StatusTooManyRequests || got != "60" {
			return fmt.Errorf("got %d with retry-after %q, want 429 with 60", a.Status, got)
		}
		return nil
	})
	if n := shop.Requests(); n != 3 {
		t.Errorf("the shop served %d logins before the limit, want 3", n)
	}
	for range 5 {
		gateway.Want(t, "the cart has no limit", harness.Request{Host: "shop.example.com", Path: "/cart"},
			harness.From("shop"))
	}
}
