package xds_test

import (
	"slices"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/xds"
)

// Count counts proxies by who proved to be them, each proxy once.
func TestCount(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	p := newSecurePlane(t, a, nil)
	api := a.issue("shop", "api", time.Hour, time.Now())
	for _, c := range []*line{call(t, p, a.web()), call(t, p, &api)} {
		if err := c.connects(node(t, map[string]any{})); err != nil {
			t.Fatal(err)
		}
	}
	count := func(accounts ...string) int {
		return p.server.Count(func(who xds.Peer) bool { return slices.Contains(accounts, who.Identity.ServiceAccount) })
	}
	if got := count("web", "api", "none"); got != 1 { // both say that they are the same proxy
		t.Errorf("%d proxies are of web and api, want 1", got)
	}
	if got := count("none"); got != 0 {
		t.Errorf("%d proxies are nobody's", got)
	}
}
