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
	// Bundle is the push.Trust.ID that it acknowledged last; empty when none, or one from before
	// its stream.
	Bundle string
}

// Bundles tells for every connected proxy which bundle it has acknowledged, by node ID.
func (s *Server) Bundles() []ProxyBundle {
	s.mu.Lock()
	streams := make([]*stream, 0, len(s.streams))
	for st := range s.streams {
		streams = append(streams, st)
	}
	s.mu.Unlock()
	out := make([]ProxyBundle, len(streams))
	for i, st := range streams {
		st.mu.Lock()
		out[i] = ProxyBundle{Proxy: st.proxy.ID, Who: st.who, Asked: st.find(ProxyConfigType) != nil,
			Bundle: st.bundle()}
		st.mu.Unlock()
	}
	slices.SortFunc(out, func(a, b ProxyBundle) int { return cmp.Compare(a.Proxy, b.Proxy) })
	return out
}

// maxBundles is how many bundles of one stream are remembered: a rotation has a few.
const maxBundles = 16

// noteBundle notes which bundle the version has that the client should have. Called with mu held.
func (st *stream) noteBundle(t *typeState) {
	if t.Kind().TypeURL != ProxyConfigType || st.scope.Trust == nil {
		return
	}
	target := t.Status().Target
	if target == "" || st.bundles[target] != "" {
		return
	}
	if st.bundles == nil || len(st.bundles) >= maxBundles {
		st.bundles = map[string]string{}
	}
	st.bundles[target] = st.scope.Trust.ID
}

// bundle is the ID of the bundle that the client acknowledged last. Called with mu held.
func (st *stream) bundle() string {
	t := st.find(ProxyConfigType)
	if t == nil {
		return ""
	}
	return st.bundles[t.Status().Acknowledged]
}
