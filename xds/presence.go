package xds

import (
	"net/netip"
	"time"
)

// Presence is where a workload is connected.
type Presence struct {
	// Address is its own, from the node.
	Address netip.Addr
	// Since is when its proxy connected.
	Since time.Time
}

// Present finds a workload by the fingerprint of its certificate. It returns false unless its proxy
// is connected to this or another replica, or was when that replica stopped.
func (s *Server) Present(certificate func(fingerprint string) bool) (p Presence, ok bool) {
	for _, st := range s.proven() {
		if certificate(st.who.Fingerprint) {
			return Presence{st.proxy.IPs.Items()[0], st.since}, true
		}
	}
	if s.cfg.Runtime == nil {
		return p, false
	}
	for _, r := range s.cfg.Runtime.Registrations().All() {
		if r.DisconnectedAt.IsZero() && r.Certificate != "" && certificate(r.Certificate) {
			return Presence{r.Addresses[0], r.ConnectedAt}, true
		}
	}
	return p, false
}
