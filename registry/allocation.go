package registry

import (
	"iter"
	"net/netip"
	"slices"
	"time"
)

// Allocation is a host that was given virtual addresses.
type Allocation struct {
	Key Key
	// Addresses are an IPv4 and an IPv6 one, its own alone.
	Addresses []netip.Addr
	// Idle is since when no source has had the host, in whole seconds; zero: one has it, or may.
	Idle time.Time
}

// Handover is an allocation that another host takes over.
type Handover struct {
	// From is what it was. That host has no addresses any more.
	From Allocation
	// To is the host that has them.
	To Key
}

// HandOver chooses, for those of keys that have no addresses, ones of idle hosts, which may be those alone that have been idle since
// the very time that idle says: of those that have been for longest first. There may be fewer than are asked for.
func HandOver(all iter.Seq[Allocation], keys []Key, idle map[Key]time.Time) []Handover {
	wanting := make(map[Key]bool, len(keys))
	for _, k := range keys {
		wanting[k] = true
	}
	var spare []Allocation
	for a := range all {
		if _, asked := wanting[a.Key]; asked {
			wanting[a.Key] = false
		} else if since, may := idle[a.Key]; may && !a.Idle.IsZero() && a.Idle.Equal(since) {
			spare = append(spare, a)
		}
	}
	slices.SortFunc(spare, func(a, b Allocation) int {
		if c := a.Idle.Compare(b.Idle); c != 0 {
			return c
		}
		return a.Key.Compare(b.Key)
	})
	var out []Handover
	for _, k := range keys {
		if wanting[k] && len(out) < len(spare) {
			out = append(out, Handover{From: spare[len(out)], To: k})
			wanting[k] = false
		}
	}
	return out
}
