package xds

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/config"
)

// A refusal is a problem until the address is registered or not asked for any more; of one group
// few are.
func TestRefusals(t *testing.T) {
	t.Parallel()
	var x refusals
	group := func(name string) *config.Object {
		return &config.Object{Key: config.Key{Kind: config.WorkloadGroup, Namespace: "shop", Name: name}}
	}
	web, api := group("web"), group("api")
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	at := func(last int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, byte(last)}) }
	want := func(what string, want ...string) {
		t.Helper()
		var got []string
		for _, p := range x.problems(now) {
			got = append(got, p.Object+": "+p.Text)
		}
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("%s: got %q, want %q", what, got, want)
		}
	}
	const first, second = "WorkloadGroup shop/api: registration refused: in use", "WorkloadGroup shop/web: registration refused: not allowed"
	x.note(api, at(1), errors.New("in use"), now)
	x.note(web, at(1), errors.New("not allowed"), now)
	x.note(web, at(2), nil, now)
	want("two groups", first, second)
	since := now
	now = now.Add(refusalAge)
	x.note(web, at(1), errors.New("not allowed"), now)
	want("tried again", first, second)
	if got := x.problems(now)[1].Since; !got.Equal(since) {
		t.Errorf("it is a problem since %v, want %v", got, since)
	}
	now = now.Add(time.Second)
	want("not tried again", second)
	x.note(web, at(1), nil, now)
	want("registered")
	for i := range 1000 {
		x.note(web, at(i%250), fmt.Errorf("refused"), now)
	}
	if len(x.all) != maxRefusals {
		t.Errorf("%d are remembered", len(x.all))
	}
	now = now.Add(2 * refusalAge)
	x.note(api, at(1), nil, now)
	if len(x.all) > 0 {
		t.Errorf("%d are remembered that are over", len(x.all))
	}
}
