package main

import (
	"crypto/x509"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/credentials"
)

// maxUnproven is how many connections there may be at once that have not proven to be a workload's. Each holds some
// 64 KB. Whoever joins is one of them for as long as that takes, a few milliseconds.
const maxUnproven = 1024

// lobby is a listener that bounds how many are inside who have not proven who they are: they cost memory and file
// descriptors before anything is known of them. When it is full, whoever has the most connections loses the oldest, so that
// one that hoards them keeps nobody else out. Safe for concurrent use.
type lobby struct {
	net.Listener
	most int
	cuts prometheus.Counter

	mu      sync.Mutex
	count   int                         // guarded by mu
	last    uint64                      // guarded by mu: the number of the latest visitor
	waiting map[netip.Prefix][]*visitor // guarded by mu: by where they are from, the oldest first
}

// visitor is a connection that came through a lobby.
type visitor struct {
	net.Conn
	lobby  *lobby
	from   netip.Prefix
	number uint64
}

// newLobby makes one of l. Errors: a metric that is registered already.
func newLobby(l net.Listener, r prometheus.Registerer) (*lobby, error) {
	out := &lobby{Listener: l, most: maxUnproven, waiting: map[netip.Prefix][]*visitor{},
		cuts: prometheus.NewCounter(prometheus.CounterOpts{Name: "ashore_unproven_connections_cut_total",
			Help: "Connections with TLS that were closed before they had proven who they are, for there were too many."})}
	if err := r.Register(out.cuts); err != nil {
		return nil, err
	}
	return out, r.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "ashore_unproven_connections",
		Help: "Connections with TLS that have not proven to be a workload's."}, func() float64 { return float64(out.size()) }))
}

// Accept implements net.Listener.
func (l *lobby) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	v := &visitor{Conn: c, lobby: l, from: neighbourhood(c.RemoteAddr())}
	if cut := l.enter(v); cut != nil {
		l.cuts.Inc()
		_ = cut.Conn.Close() // who serves it finds out, and closes it too
	}
	return v, nil
}

// enter takes v in, and returns who has to go for it; nil: nobody.
func (l *lobby) enter(v *visitor) *visitor {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last++
	v.number = l.last
	l.waiting[v.from] = append(l.waiting[v.from], v)
	l.count++
	if l.count <= l.most {
		return nil
	}
	var crowd []*visitor
	for _, c := range l.waiting {
		if len(c) > len(crowd) || len(c) == len(crowd) && c[0].number < crowd[0].number {
			crowd = c
		}
	}
	oldest := crowd[0]
	l.remove(oldest)
	return oldest
}

// leave takes v out: it has proven who it is, or is closed.
func (l *lobby) leave(v *visitor) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.remove(v)
}

// remove takes v out if it is there. mu is held.
func (l *lobby) remove(v *visitor) {
	crowd := l.waiting[v.from]
	i := slices.Index(crowd, v)
	if i < 0 {
		return
	}
	l.count--
	if crowd = slices.Delete(crowd, i, i+1); len(crowd) == 0 {
		delete(l.waiting, v.from)
		return
	}
	l.waiting[v.from] = crowd
}

// size is how many are inside.
func (l *lobby) size() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.count
}

// Close implements net.Conn.
func (v *visitor) Close() error {
	v.lobby.leave(v)
	return v.Conn.Close()
}

// neighbourhood is where a connection is from: an address of version 4, or the 64 bits of one of version 6 that a single
// machine commands.
func neighbourhood(a net.Addr) netip.Prefix {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	ip := tcp.AddrPort().Addr().Unmap()
	bits := ip.BitLen()
	if ip.Is6() {
		bits = 64
	}
	p, err := ip.WithZone("").Prefix(bits)
	if err != nil { // no such length
		return netip.Prefix{}
	}
	return p
}

// doorman is TLS that lets out of the lobby who proves to be a workload.
type doorman struct {
	credentials.TransportCredentials
	// proves says whether a chain, whose key was proven to be at hand, is a workload's.
	proves func(chain []*x509.Certificate, now time.Time) error
}

// ServerHandshake implements credentials.TransportCredentials.
func (d doorman) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	out, info, err := d.TransportCredentials.ServerHandshake(c)
	if err != nil {
		return out, info, err
	}
	v, inside := c.(*visitor)
	if t, ok := info.(credentials.TLSInfo); inside && ok && len(t.State.PeerCertificates) > 0 && d.proves(t.State.PeerCertificates, time.Now()) == nil {
		v.lobby.leave(v)
	}
	return out, info, nil
}

// Clone implements credentials.TransportCredentials.
func (d doorman) Clone() credentials.TransportCredentials {
	return doorman{d.TransportCredentials.Clone(), d.proves}
}
