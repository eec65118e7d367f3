package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ashore-mesh/ashore/ca"
	"github.com/ashore-mesh/ashore/internal/spiffe"
)

// maxAway is how many workloads are named that are not connected.
const maxAway = 5

// away says which workloads that have a valid certificate are not connected, and so hear of a
// change later; empty: none. The ledger may have some that cannot be read: these are not told of.
func (o operators) away(known []ca.Workload) string {
	server := o.fleet.Load()
	if server == nil {
		return ""
	}
	connected, now := server.Connected(), o.now()
	var out []string
	for _, w := range known {
		if o.valid(w, now) && !slices.ContainsFunc(w.Known(), func(l ca.Leaf) bool { return connected[l.SHA256] }) {
			out = append(out, w.Name)
		}
	}
	if len(out) == 0 {
		return ""
	}
	slices.Sort(out)
	text := strings.Join(out[:min(len(out), maxAway)], ", ")
	if len(out) > maxAway {
		text += ", …"
	}
	where := ""
	if o.otherReplicas() > 0 {
		where = " to this replica, nor registered at another one"
	}
	if len(out) == 1 {
		return fmt.Sprintf("1 workload with a valid certificate is not connected%s, and hears of it when it is: %s. Until then it goes on with what it has; an agent that runs is back within half a minute of when it can reach this", where, text)
	}
	return fmt.Sprintf("%d workloads with a valid certificate are not connected%s, and hear of it when they are: %s. Until then they go on with what they have; an agent that runs is back within half a minute of when it can reach this", len(out), where, text)
}

// valid says that a workload has a certificate that is neither ended nor revoked.
func (o operators) valid(w ca.Workload, now time.Time) bool {
	who, err := spiffe.Parse(w.Identity)
	return err == nil && slices.ContainsFunc(w.Leaves, func(l ca.Leaf) bool {
		return l.NotAfter.After(now) && o.revoked(who, l.SHA256) == nil
	})
}
