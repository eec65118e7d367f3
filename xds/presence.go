package xds

import (
	"net/netip"
	"time"
)

// Presence is where a workload is connected.
type Presence struct {
	// Address is its own, from the node.
	Address netip.Addr
	// Since is when its proxy connected, or disconnected.
	Since time.Time
	// Connected means to this or another replica. Otherwise its registration has not ended yet.
	Connected bool
}

// Present finds a workload by the fingerprint of its certificate: its proxy is connected, or it is
// still registered.
func (s *Server) Present(certificate func(fingerprint string) bool) (p Presence, ok bool) {
	if p, ok = s.connected(certificate); ok || s.cfg.Runtime == nil {
		return p, ok
	}
	for _, r := range s.cfg.Runtime.Registrations().All() {
		if r.Certificate == "" || !certificate(r.Certificate) {
			continue
		}
		q := Presence{r.Addresses[0], r.ConnectedAt, true}
		if !r.DisconnectedAt.IsZero() {
			q.Since, q.Connected = r.DisconnectedAt, false
		}
		if !ok || q.Connected && !p.Connected {
			p, ok = q, true
		}
	}
	return p, ok
}

// connected is Present for the proxies of this server; of several, the one that connected first.
func (s *Server) connected(certificate func(fingerprint string) bool) (p Presence, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for st := range s.streams {
		if st.who.fingerprint == "" || !certificate(st.who.fingerprint) || ok && p.Since.Before(st.since) {
			continue
		}
		p, ok = Presence{st.proxy.IPs.Items()[0], st.since, true}, true
	}
	return p, ok
}
