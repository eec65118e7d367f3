package xds

import (
	"net/netip"
	"slices"

	"github.com/ashore-mesh/ashore/internal/spiffe"
)

// Addresses are from where proxies speak that match, which is asked with s locked: the addresses that they say are
// theirs, and the one that they are connected from when nobody else is. Many may be behind one address, of a gateway or
// a balancer.
func (s *Server) Addresses(match func(Peer) bool) []netip.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := map[netip.Addr]bool{} // true: said to be one's own
	others := map[netip.Addr]bool{}
	for st := range s.streams {
		from, matched := hostOf(st.peer), st.who.Identity != (spiffe.ID{}) && match(st.who)
		if !matched {
			others[from] = true
			continue
		}
		if !found[from] {
			found[from] = false
		}
		for _, a := range st.proxy.IPs.Items() {
			found[a.Unmap()] = true
		}
	}
	var out []netip.Addr
	for a, said := range found {
		if a.IsValid() && (said || !others[a]) {
			out = append(out, a)
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return out
}

// hostOf is the host of "host:port"; not valid when that is none.
func hostOf(address string) netip.Addr {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return netip.Addr{}
	}
	return ap.Addr().Unmap()
}
