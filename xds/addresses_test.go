package xds_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/xds"
)

// Who is asked for is found at the addresses that its proxy says, and at the one it connects from unless others do too.
func TestAddresses(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	p := newSecurePlane(t, a, nil)
	ask := func(account string) []netip.Addr {
		return p.server.Addresses(func(who xds.Peer) bool { return who.Identity.ServiceAccount == account })
	}
	want := func(what, account, addresses string) {
		t.Helper()
		var text []string
		for _, x := range ask(account) {
			text = append(text, x.String())
		}
		if got := strings.Join(text, " "); got != addresses {
			t.Errorf("%s: got %q, want %q", what, got, addresses)
		}
	}
	want("nobody is there", "web", "")
	if err := call(t, p, a.web()).connects(node(t, map[string]any{"INSTANCE_IPS": "10.0.0.9,fd00::9"})); err != nil {
		t.Fatal(err)
	}
	from := ask("web")
	here := slices.IndexFunc(from, netip.Addr.IsLoopback)
	if len(from) != 3 || here < 0 {
		t.Fatalf("alone: got %v, want what the proxy says and where it is", from)
	}
	api := a.issue("shop", "api", time.Hour, time.Now())
	if err := call(t, p, &api).connects(node(t, map[string]any{})); err != nil {
		t.Fatal(err)
	}
	want("another one comes from there too", "web", "10.0.0.9 fd00::9")
	want("the other one", "api", "10.0.0.1")
	want("somebody else", "none", "")
	liar := a.issue("shop", "liar", time.Hour, time.Now())
	if err := call(t, p, &liar).connects(node(t, map[string]any{"INSTANCE_IPS": "10.0.0.9,10.0.0.1,10.0.0.66"})); err != nil {
		t.Fatal(err)
	}
	want("what it says of others does not count", "liar", "10.0.0.66")

	held := func(account string) []netip.Addr {
		some := []netip.Addr{netip.MustParseAddr("10.0.0.9"), netip.MustParseAddr("10.0.0.66"), netip.MustParseAddr("10.0.0.77")}
		return p.server.Held(some, func(who xds.Peer) bool { return who.Identity.ServiceAccount == account })
	}
	for account, want := range map[string]string{"web": "[10.0.0.9]", "liar": "[10.0.0.9 10.0.0.66]", "api": "[]"} {
		if got := fmt.Sprint(held(account)); got != want {
			t.Errorf("%s holds %s, want %s", account, got, want)
		}
	}

	count := func(accounts ...string) int {
		return p.server.Count(func(who xds.Peer) bool { return slices.Contains(accounts, who.Identity.ServiceAccount) })
	}
	if got := count("web", "liar", "none"); got != 1 { // both say that they are the same proxy
		t.Errorf("%d proxies are web's and the liar's, want 1", got)
	}
	if got := count("none"); got != 0 {
		t.Errorf("%d proxies are nobody's", got)
	}
}
