package main

import (
	"strings"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/internal/admin"
)

// Who a proxy proved to be stands in its status, and that it proved nothing too.
func TestProxyIdentity(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		p    admin.ProxyStatus
		want string
	}{
		"proven": {admin.ProxyStatus{Identity: "spiffe://cluster.local/ns/shop/sa/web", Serial: "7dfc", Expires: now.Add(5 * time.Hour), Bundle: "0123456789"},
			"spiffe://cluster.local/ns/shop/sa/web, certificate 7dfc until " + now.Add(5*time.Hour).Local().Format(time.DateTime) + " (5h left), trusts roots 0123456\n\n"},
		"nobody": {admin.ProxyStatus{}, "no identity: it is connected without TLS\n\n"},
	} {
		var out strings.Builder
		if err := proven(&out, tc.p, now); err != nil || out.String() != tc.want {
			t.Errorf("%s: got %q, %v; want %q", name, out.String(), err, tc.want)
		}
	}
}
