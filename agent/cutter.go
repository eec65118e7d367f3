package agent

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"github.com/ashore-mesh/ashore/internal/revoked"
)

const (
	// cutPace is how often is looked for connections with who is revoked: a gateway judges one with the first byte that its
	// caller sends, and who is silent hears until then what a server says unasked.
	cutPace = time.Second
	// cutLogPace bounds the log: a revoked workload may connect as often as it likes.
	cutLogPace = time.Minute
)

// cutter ends the connections of Envoy with workloads that were revoked, for as long as they are in the list that it was
// told: a connection of TCP is judged when it begins, and never again. It knows them by their addresses.
// Whoever shares an address with one of them cannot connect.
type cutter struct {
	// The following fields are set once.
	told  <-chan []revoked.Peer
	pid   func() int   // of Envoy; zero: none runs
	own   []netip.Addr // of the workload
	bound time.Duration
	log   hclog.Logger

	able atomic.Pointer[bool] // nil: not known yet

	// The following fields belong to Run.
	ended    int   // connections that the log does not tell of yet
	failed   error // the last failure that it does not tell of yet
	nextLine time.Time
}

// newCutter is that of a workload with these settings.
func newCutter(s *Settings, told <-chan []revoked.Peer, pid func() int, log hclog.Logger) *cutter {
	c := &cutter{told: told, pid: pid, bound: s.Envoy.DrainTime, log: log}
	for _, a := range s.Workload.Addresses {
		c.own = append(c.own, netip.MustParseAddr(a).Unmap())
	}
	return c
}

// Run ends connections with whom the latest list names, until ctx ends. While that is nobody it waits.
func (c *cutter) Run(ctx context.Context) error {
	err := canDestroy(ctx)
	able := err == nil
	c.able.Store(&able)
	if !able {
		c.log.Info("raw TCP connections with a revoked workload end when Envoy has drained them, not at once: this agent may not end sockets; with systemd set AmbientCapabilities=CAP_NET_ADMIN",
			"within", c.bound, "reason", err)
	}
	var watched map[netip.Addr]bool
	for {
		var look <-chan time.Time
		if able && len(watched) > 0 {
			c.cut(watched)
			look = time.After(cutPace)
		}
		select {
		case <-ctx.Done():
			return nil
		case peers := <-c.told:
			c.tell()
			watched = c.watched(peers)
		case <-look:
		}
	}
}

// Text says when the raw connections of a revoked workload end; empty: that is not known yet. On loopback workloads call
// each other from one address, by which nobody is known.
func (c *cutter) Text() string {
	switch able := c.able.Load(); {
	case able == nil:
		return ""
	case *able && !c.own[0].IsLoopback():
		return "raw TCP of a revoked workload ends at once"
	}
	return "raw TCP of a revoked workload ends within " + c.bound.String()
}

// watched are the addresses that are told, without those that would hurt the workload itself: its own, and those of its
// machine, where its applications are.
func (c *cutter) watched(told []revoked.Peer) map[netip.Addr]bool {
	out := map[netip.Addr]bool{}
	for _, p := range told {
		a := p.Address.Unmap().WithZone("")
		local := a.IsUnspecified() || a.IsLoopback() && !c.own[0].IsLoopback()
		if !local && !slices.Contains(c.own, a) {
			out[a] = true
		}
	}
	return out
}

// cut ends what Envoy has open with addresses.
func (c *cutter) cut(addresses map[netip.Addr]bool) {
	pid := c.pid()
	if pid == 0 {
		return // what it had open has ended with it
	}
	c.note(cutConnections(pid, addresses))
}

// note counts what was ended for the log, which it is told at once after a while without.
func (c *cutter) note(n int, err error) {
	c.ended, c.failed = c.ended+n, cmp.Or(err, c.failed)
	if !time.Now().Before(c.nextLine) {
		c.tell()
	}
}

// tell logs what was ended, and what could not be, since the last line.
func (c *cutter) tell() {
	switch {
	case c.failed != nil:
		c.log.Warn("connections with a revoked workload were not all ended: Envoy drains the others", "ended", c.ended, "within", c.bound, "error", c.failed)
	case c.ended > 0:
		c.log.Info("connections with a revoked workload were ended", "connections", c.ended, "next line not before", cutLogPace)
	default:
		return
	}
	c.ended, c.failed, c.nextLine = 0, nil, time.Now().Add(cutLogPace)
}

// cutConnections ends the TCP connections of a process with addresses, and counts them. Errors: why others were not ended.
func cutConnections(pid int, addresses map[netip.Addr]bool) (n int, err error) {
	table, err := openSocketTable()
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, table.close()) }()
	sockets, err := table.list(addresses)
	if err != nil || len(sockets) == 0 {
		return 0, err
	}
	mine, err := socketsOf(pid)
	if err != nil {
		return 0, err
	}
	for _, s := range sockets {
		if !mine[s.inode] {
			continue
		}
		ended, failed := table.destroy(s)
		if ended {
			n++
		}
		err = cmp.Or(err, failed)
		if errors.Is(failed, unix.EPERM) || errors.Is(failed, unix.EAGAIN) { // so it would be for the others
			break
		}
	}
	return n, err
}
