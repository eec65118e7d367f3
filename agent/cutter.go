package agent

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"github.com/ashore-mesh/ashore/internal/revoked"
)

// cutAgain is after how long is looked once more: until Envoy has the policy that refuses who was revoked, it may take a new
// connection of theirs.
const cutAgain = 2 * time.Second

// cutter ends the connections of Envoy with workloads that were revoked: a connection of TCP is judged when it is opened, and
// goes on until Envoy has drained it otherwise. It knows them by their addresses. Whoever shares an address with one of
// them has to connect anew.
type cutter struct {
	// The following fields are set once.
	told  <-chan []revoked.Peer
	pid   func() int   // of Envoy; zero: none runs
	own   []netip.Addr // of the workload
	bound time.Duration
	log   hclog.Logger

	able atomic.Pointer[bool] // nil: not known yet
}

// newCutter is that of a workload with these settings.
func newCutter(s *Settings, told <-chan []revoked.Peer, pid func() int, log hclog.Logger) *cutter {
	c := &cutter{told: told, pid: pid, bound: s.Envoy.DrainTime, log: log}
	for _, a := range s.Workload.Addresses {
		c.own = append(c.own, netip.MustParseAddr(a).Unmap())
	}
	return c
}

// Run ends connections, once for each revocation, until ctx ends.
func (c *cutter) Run(ctx context.Context) error {
	err := canDestroy(ctx)
	able := err == nil
	c.able.Store(&able)
	if !able {
		c.log.Info("raw TCP connections with a revoked workload end when Envoy has drained them, not at once: this agent may not end sockets; with systemd set AmbientCapabilities=CAP_NET_ADMIN",
			"within", c.bound, "reason", err)
	}
	var known []revoked.Peer // also those that a replica tells no more: the next one may
	twice := map[netip.Addr]bool{}
	var again <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case peers := <-c.told:
			found := c.fresh(peers, known)
			known = revoked.Sort(slices.Concat(known, peers))
			if able && len(found) > 0 {
				c.cut(found)
				maps.Copy(twice, found)
				again = time.After(cutAgain)
			}
		case <-again:
			c.cut(twice)
			clear(twice)
		}
	}
}

// Text says when the raw connections of a revoked workload end; empty: that is not known yet.
func (c *cutter) Text() string {
	switch able := c.able.Load(); {
	case able == nil:
		return ""
	case *able:
		return "raw TCP of a revoked workload ends at once"
	}
	return "raw TCP of a revoked workload ends within " + c.bound.String()
}

// fresh are the addresses that are told and were not known, without those that would hurt the workload itself: its own, and
// those of its machine, where its applications are.
func (c *cutter) fresh(told, known []revoked.Peer) map[netip.Addr]bool {
	out := map[netip.Addr]bool{}
	for _, p := range told {
		a := p.Address.Unmap().WithZone("")
		local := a.IsUnspecified() || a.IsLoopback() && !c.own[0].IsLoopback()
		if !local && !slices.Contains(known, p) && !slices.Contains(c.own, a) {
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
	n, err := cutConnections(pid, addresses)
	switch {
	case err != nil:
		c.log.Warn("connections with a revoked workload were not all ended: Envoy drains the others", "ended", n, "within", c.bound, "error", err)
	case n > 0:
		c.log.Info("connections with a revoked workload were ended", "connections", n,
			"addresses", slices.SortedFunc(maps.Keys(addresses), netip.Addr.Compare))
	}
}

// cutConnections ends the TCP connections of a process with addresses, and counts them. Errors: why others were not ended.
func cutConnections(pid int, addresses map[netip.Addr]bool) (n int, err error) {
	table, err := openSocketTable()
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, table.close()) }()
	sockets, err := table.list(func(a netip.Addr) bool { return addresses[a] })
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
