package xds

import (
	"net/netip"
	"slices"

	"github.com/ashore-mesh/ashore/internal/spiffe"
)

// Addresses are from where proxies speak that match, which is asked with s locked: the addresses that they say are
// theirs, and the one that they are connected from. What somebody else says is his, or connects from, is left out: many
// may be behind one address of a gateway or a balancer, and a proxy may say what it likes.
func (s *Server) Addresses(match func(Peer) bool) []netip.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	found, others := map[netip.Addr]bool{}, map[netip.Addr]bool{}
	for st := range s.streams {
		into := others
		if st.who.Identity != (spiffe.ID{}) && match(st.who) {
			into = found
		}
		into[hostOf(st.peer)] = true
		for _, a := range st.proxy.IPs.Items() {
			into[a.Unmap()] = true
		}
	}
	var out []netip.Addr
	for a := range found {
		if a.IsValid() && !others[a] {
			out = append(out, a)
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return out
}

// Held are those of addresses that proxies which match say are theirs, or connect from, sorted. Unlike Addresses it leaves
// out none that several have; match is asked with s locked, about few.
func (s *Server) Held(addresses []netip.Addr, match func(Peer) bool) []netip.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []netip.Addr
	for st := range s.streams {
		if st.who.Identity == (spiffe.ID{}) {
			continue
		}
		from := hostOf(st.peer)
		held := slices.DeleteFunc(slices.Clone(addresses), func(a netip.Addr) bool {
			return a != from && !slices.ContainsFunc(st.proxy.IPs.Items(), func(ip netip.Addr) bool { return ip.Unmap() == a })
		})
		if len(held) > 0 && match(st.who) {
			out = append(out, held...)
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out)
}

// hostOf is the host of "host:port"; not valid when that is none.
func hostOf(address string) netip.Addr {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return netip.Addr{}
	}
	return ap.Addr().Unmap()
}
