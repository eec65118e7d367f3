package agent

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/ashore-mesh/ashore/internal/revoked"
	"github.com/ashore-mesh/ashore/internal/testlog"
)

// cutterOf is that of a workload with these addresses whose Envoy is this process.
func cutterOf(t *testing.T, told <-chan []revoked.Peer, addresses ...string) *cutter {
	t.Helper()
	s := Default()
	s.Workload.Addresses, s.Envoy.DrainTime = addresses, 45*time.Second
	return newCutter(&s, told, os.Getpid, testlog.New(t))
}

func peersOf(epoch uint64, addresses ...string) []revoked.Peer {
	var out []revoked.Peer
	for _, a := range addresses {
		out = append(out, revoked.Peer{Address: netip.MustParseAddr(a), Epoch: epoch})
	}
	return out
}

// Each revocation counts once, and nobody can have a workload cut itself off, or from its applications, by saying that he
// is there.
func TestCutterFresh(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name        string
		own         string
		told, known []revoked.Peer
		want        string
	}{
		{"the first", "10.0.0.1", peersOf(1, "10.0.0.7", "fd00::7"), nil, "10.0.0.7 fd00::7"},
		{"known", "10.0.0.1", peersOf(1, "10.0.0.7"), peersOf(1, "10.0.0.7"), ""},
		{"one more", "10.0.0.1", slices.Concat(peersOf(1, "10.0.0.7"), peersOf(2, "10.0.0.8")), peersOf(1, "10.0.0.7"), "10.0.0.8"},
		{"revoked again", "10.0.0.1", peersOf(2, "10.0.0.7"), peersOf(1, "10.0.0.7"), "10.0.0.7"},
		{"none any more", "10.0.0.1", nil, peersOf(1, "10.0.0.7"), ""},
		{"written otherwise", "10.0.0.1", peersOf(1, "::ffff:10.0.0.7", "fe80::7%eth0"), nil, "10.0.0.7 fe80::7"},
		{"its own", "10.0.0.1", peersOf(1, "10.0.0.1", "::ffff:10.0.0.1"), nil, ""},
		{"its machine", "10.0.0.1", peersOf(1, "127.0.0.1", "127.0.0.6", "::1", "0.0.0.0", "::"), nil, ""},
		{"on one machine", "127.0.21.1", peersOf(1, "127.0.21.1", "127.0.21.7"), nil, "127.0.21.7"},
	} {
		c := cutterOf(t, nil, tc.own)
		var got []string
		for _, a := range slices.SortedFunc(maps.Keys(c.fresh(tc.told, tc.known)), netip.Addr.Compare) {
			got = append(got, a.String())
		}
		if d := cmp.Diff(tc.want, strings.Join(got, " ")); d != "" {
			t.Errorf("%s: %s", tc.name, d)
		}
	}
}

// What operators read follows what the agent may do.
func TestCutterText(t *testing.T) {
	t.Parallel()
	c := cutterOf(t, nil, "10.0.0.1")
	able, unable := true, false
	for want, state := range map[string]*bool{"": nil, "raw TCP of a revoked workload ends at once": &able, "raw TCP of a revoked workload ends within 45s": &unable} {
		c.able.Store(state)
		if got := c.Text(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// Once it is told, connections with a revoked workload end, and others go on.
func TestCutterRun(t *testing.T) {
	t.Parallel()
	destroyer(t)
	told := make(chan []revoked.Peer)
	c := cutterOf(t, told, "127.0.21.1")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	_, in := ends(t, "127.0.21.17", "127.0.21.1", "127.0.21.1")
	keptOut, keptIn := ends(t, "127.0.21.18", "127.0.21.1", "127.0.21.1")
	told <- peersOf(1, "127.0.21.17")
	if _, err := in.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNABORTED) {
		t.Errorf("got %v, want %v", err, unix.ECONNABORTED)
	}
	if err := alive(keptOut, keptIn); err != nil {
		t.Errorf("with another one: %v", err)
	}
	told <- nil // as a control plane that has just begun
	told <- peersOf(2, "127.0.21.18")
	if _, err := keptIn.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNABORTED) {
		t.Errorf("the next one: got %v, want %v", err, unix.ECONNABORTED)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// A connection that slipped in before Envoy had heard of the revocation ends too, and later ones do not, also when the list
// is told anew: what was known stays known.
func TestCutterAgain(t *testing.T) {
	t.Parallel()
	destroyer(t)
	told := make(chan []revoked.Peer)
	c := cutterOf(t, told, "127.0.21.1")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	told <- peersOf(1, "127.0.21.27")
	told <- nil // it has cut once by now
	_, slipped := ends(t, "127.0.21.27", "127.0.21.1", "127.0.21.1")
	if _, err := slipped.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNABORTED) {
		t.Errorf("got %v, want %v", err, unix.ECONNABORTED)
	}
	laterOut, laterIn := ends(t, "127.0.21.27", "127.0.21.1", "127.0.21.1")
	told <- peersOf(1, "127.0.21.27")
	told <- nil // it has looked at these by now
	if err := alive(laterOut, laterIn); err != nil {
		t.Errorf("a later one: %v", err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
