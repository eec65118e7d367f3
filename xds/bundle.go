package xds

import (
	"cmp"
	"slices"
)

// ProxyBundle is which trusted authorities a connected proxy has, as far as it said.
type ProxyBundle struct {
	// Proxy is the node ID.
	Proxy string
	// Who is who it proved to be.
	Who Peer
	// Asked says that it asked for the bundle at all.
	Asked bool
	// Bundle is the push.Trust.ID of the latest one that it acknowledged before the next one came;
	// empty if none.
	Bundle string
}

// Bundles tells for every connected proxy which bundle it has acknowledged, by node ID.
func (s *Server) Bundles() []ProxyBundle {
	streams := s.all()
	out := make([]ProxyBundle, len(streams))
	for i, st := range streams {
		st.mu.Lock()
		out[i] = ProxyBundle{Proxy: st.proxy.ID, Who: st.who, Asked: st.find(ProxyConfigType) != nil,
			Bundle: st.bundle}
		st.mu.Unlock()
	}
	slices.SortFunc(out, func(a, b ProxyBundle) int { return cmp.Compare(a.Proxy, b.Proxy) })
	return out
}
