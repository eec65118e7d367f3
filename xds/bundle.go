package xds

import (
	"cmp"
	"slices"
)

// ProxyBundle is the bundle of trusted authorities that a connected proxy has.
type ProxyBundle struct {
	// Proxy is the node ID.
	Proxy string
	// Who is its peer.
	Who Peer
	// Asked means that it subscribed to the bundle.
	Asked bool
	// Bundle is the push.Trust.ID of the latest one that it acknowledged before the next one came;
	// empty if none.
	Bundle string
}

// Bundles returns the acknowledged bundle of every connected proxy, by node ID.
func (s *Server) Bundles() []ProxyBundle {
	streams := s.all()
	out := make([]ProxyBundle, len(streams))
	for i, st := range streams {
		st.mu.Lock()
		out[i] = ProxyBundle{Proxy: st.proxy.ID, Who: st.who, Asked: st.order.Find(ProxyConfigType) != nil,
			Bundle: st.bundle}
		st.mu.Unlock()
	}
	slices.SortFunc(out, func(a, b ProxyBundle) int { return cmp.Compare(a.Proxy, b.Proxy) })
	return out
}
