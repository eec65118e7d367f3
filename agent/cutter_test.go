package agent

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/go-hclog"
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

// Nobody can have a workload cut itself off, or from its applications, by saying that he is there.
func TestCutterWatched(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		own  string
		told []revoked.Peer
		want string
	}{
		{"some", "10.0.0.1", peersOf(1, "10.0.0.7", "fd00::7"), "10.0.0.7 fd00::7"},
		{"revoked again", "10.0.0.1", slices.Concat(peersOf(1, "10.0.0.7"), peersOf(2, "10.0.0.7")), "10.0.0.7"},
		{"none", "10.0.0.1", nil, ""},
		{"written otherwise", "10.0.0.1", peersOf(1, "::ffff:10.0.0.7", "fe80::7%eth0"), "10.0.0.7 fe80::7"},
		{"its own", "10.0.0.1", peersOf(1, "10.0.0.1", "::ffff:10.0.0.1"), ""},
		{"its machine", "10.0.0.1", peersOf(1, "127.0.0.1", "127.0.0.6", "::1", "0.0.0.0", "::"), ""},
		{"on one machine", "127.0.21.1", peersOf(1, "127.0.21.1", "127.0.21.7"), "127.0.21.7"},
	} {
		c := cutterOf(t, nil, tc.own)
		var got []string
		for _, a := range slices.SortedFunc(maps.Keys(c.watched(tc.told)), netip.Addr.Compare) {
			got = append(got, a.String())
		}
		if d := cmp.Diff(tc.want, strings.Join(got, " ")); d != "" {
			t.Errorf("%s: %s", tc.name, d)
		}
	}
}

// What operators read follows what the agent may do, and whether peers can be told apart by their addresses.
func TestCutterText(t *testing.T) {
	t.Parallel()
	able, unable := true, false
	for _, tc := range []struct {
		own, want string
		able      *bool
	}{
		{"10.0.0.1", "", nil},
		{"10.0.0.1", "raw TCP of a revoked workload ends at once", &able},
		{"10.0.0.1", "raw TCP of a revoked workload ends within 45s", &unable},
		{"127.0.0.2", "raw TCP of a revoked workload ends within 45s", &able},
	} {
		c := cutterOf(t, nil, tc.own)
		c.able.Store(tc.able)
		if got := c.Text(); got != tc.want {
			t.Errorf("%s: got %q, want %q", tc.own, got, tc.want)
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

// Later connections end too, for as long as the list stands: a gateway does not judge who is silent.
func TestCutterLater(t *testing.T) {
	t.Parallel()
	destroyer(t)
	told := make(chan []revoked.Peer)
	c := cutterOf(t, told, "127.0.21.1")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	told <- peersOf(1, "127.0.21.27")
	for range 3 {
		_, later := ends(t, "127.0.21.27", "127.0.21.1", "127.0.21.1")
		if _, err := later.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNABORTED) {
			t.Errorf("got %v, want %v", err, unix.ECONNABORTED)
		}
	}
	told <- nil // it is restored
	out, in := ends(t, "127.0.21.27", "127.0.21.1", "127.0.21.1")
	time.Sleep(2 * cutPace) // in which it would be ended
	if err := alive(out, in); err != nil {
		t.Errorf("once it is restored: %v", err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// Whoever connects without end does not fill the log.
func TestCutterLog(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := cutterOf(t, nil, "10.0.0.1")
		var lines bytes.Buffer
		c.log = hclog.New(&hclog.LoggerOptions{Output: &lines})
		for range 3 * int(cutLogPace/cutPace) {
			c.note(1, nil)
			time.Sleep(cutPace)
		}
		if n := strings.Count(lines.String(), "were ended"); n != 3 {
			t.Errorf("got %d lines in three times %v, want 3:\n%s", n, cutLogPace, &lines)
		}
	})
}
