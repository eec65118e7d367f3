package main

import (
	"crypto/x509"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/credentials"

	"github.com/ashore-mesh/ashore/ca"
	"github.com/ashore-mesh/ashore/internal/crowd"
	"github.com/ashore-mesh/ashore/internal/spiffe"
	"github.com/ashore-mesh/ashore/internal/unfinished"
	"github.com/ashore-mesh/ashore/xds"
)

const (
	// maxHandshakes is how many connections may be at their handshake at once, some 10 KB each. It is large enough for a
	// fleet that comes back all at once.
	maxHandshakes = 8192
	// maxUnproven is how many there may be beyond it that have not proven to be a workload's, some 64 KB each. Whoever joins
	// is one of them for as long as that takes, a few milliseconds.
	maxUnproven = 1024
)

// lobby is a listener that bounds how many are inside who have not proven who they are: they cost memory and file
// descriptors before anything is known of them. A connection counts as a handshake, then as unproven, until its certificate is
// verified. Then the limits of its workload apply. Safe for concurrent use.
type lobby struct {
	net.Listener
	cuts   prometheus.Counter // set once
	limits *connLimiter       // set once: of workloads

	mu                   sync.Mutex
	last                 uint64 // guarded by mu: the number of the latest visitor
	handshakes, unproven room   // guarded by mu
}

// room is a part of a lobby. When it is full, whoever has the most connections loses the oldest, so that one that hoards
// them keeps nobody else out.
type room struct {
	most    int
	count   int
	waiting map[netip.Prefix][]*visitor // by where they are from, the oldest first
}

// visitor is a connection that came through a lobby.
type visitor struct {
	net.Conn
	lobby  *lobby
	from   netip.Prefix
	number uint64
	in     *room   // guarded by lobby.mu; nil: none
	client *client // guarded by lobby.mu: as whose connection it is counted; nil: it is not
	gone   bool    // guarded by lobby.mu: it is closed, and comes into no room any more
}

// newLobby makes one of l, from where those may go on whom limits admits. Errors: a metric that is registered already.
func newLobby(l net.Listener, limits *connLimiter, r prometheus.Registerer) (*lobby, error) {
	files := openFiles()
	out := &lobby{Listener: l, limits: limits,
		handshakes: room{most: min(maxHandshakes, files/4), waiting: map[netip.Prefix][]*visitor{}},
		unproven:   room{most: min(maxUnproven, files/4), waiting: map[netip.Prefix][]*visitor{}},
		cuts: prometheus.NewCounter(prometheus.CounterOpts{Name: "ashore_unproven_connections_cut_total",
			Help: "Connections with TLS that were closed before they had proven who they are, for there were too many."})}
	if err := r.Register(out.cuts); err != nil {
		return nil, err
	}
	for stage, in := range map[string]*room{"handshake": &out.handshakes, "done": &out.unproven} {
		g := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "ashore_unproven_connections", ConstLabels: prometheus.Labels{"stage": stage},
			Help: "Connections with TLS that have not proven to be a workload's, by how far they are."}, func() float64 { return float64(out.size(in)) })
		if err := r.Register(g); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// openFiles is how many files and connections this process may have open: strangers get a half of them at most.
func openFiles() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil || limit.Cur > 1<<20 {
		return 1 << 20
	}
	return int(limit.Cur)
}

// Accept implements net.Listener.
func (l *lobby) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	v := &visitor{Conn: c, lobby: l, from: crowd.Household(c.RemoteAddr().String())}
	l.move(v, &l.handshakes)
	return v, nil
}

// move takes v to a room, nil for out of the lobby. Who has to go for it is cut off.
func (l *lobby) move(v *visitor, to *room) {
	l.mu.Lock()
	v.in.remove(v)
	if v.gone {
		to = nil
	}
	v.in = to
	l.last++
	v.number = l.last
	cut := to.add(v)
	if cut != nil {
		cut.in, cut.gone = nil, true
	}
	l.mu.Unlock()
	if cut != nil {
		l.cuts.Inc()
		_ = cut.Conn.Close() // who serves it finds out, and closes it too
	}
}

// size is how many are in a room.
func (l *lobby) size(in *room) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return in.count
}

// add takes v in, and returns who has to go for it; nil: nobody.
func (r *room) add(v *visitor) *visitor {
	if r == nil {
		return nil
	}
	r.waiting[v.from] = append(r.waiting[v.from], v)
	if r.count++; r.count <= r.most {
		return nil
	}
	var crowd []*visitor
	for _, c := range r.waiting {
		if len(c) > len(crowd) || len(c) == len(crowd) && c[0].number < crowd[0].number {
			crowd = c
		}
	}
	oldest := crowd[0]
	r.remove(oldest)
	return oldest
}

// remove takes v out.
func (r *room) remove(v *visitor) {
	if r == nil {
		return
	}
	crowd := r.waiting[v.from]
	i := slices.Index(crowd, v)
	r.count--
	if crowd = slices.Delete(crowd, i, i+1); len(crowd) == 0 {
		delete(r.waiting, v.from)
		return
	}
	r.waiting[v.from] = crowd
}

// Close implements net.Conn.
func (v *visitor) Close() error {
	v.lobby.mu.Lock()
	v.gone = true
	if v.client != nil {
		v.lobby.limits.leave(*v.client)
		v.client = nil
	}
	v.lobby.mu.Unlock()
	v.lobby.move(v, nil)
	return v.Conn.Close()
}

// greet lets v out of the lobby, if it has proven who it is; its handshake is done. It returns what the connection may hold of
// unfinished requests; nil: nobody knows whose it is. Errors: it has, and is one too many; it stays in the lobby until it has
// been told.
func (v *visitor) greet(info credentials.AuthInfo, proves func([]*x509.Certificate, time.Time) (spiffe.ID, error)) (*unfinished.Budget, error) {
	var chain []*x509.Certificate
	if t, ok := info.(credentials.TLSInfo); ok {
		chain = t.State.PeerCertificates
	}
	if len(chain) == 0 {
		v.lobby.move(v, &v.lobby.unproven)
		return nil, nil
	}
	id, err := proves(chain, time.Now())
	if err != nil {
		v.lobby.move(v, &v.lobby.unproven)
		return nil, nil
	}
	return v.admit(client{id, xds.QuotaKey(id, ca.WorkloadName(chain[0]), v.from), v.from})
}

// admit lets v out of the lobby as a connection of a workload. Errors: as of greet.
func (v *visitor) admit(who client) (*unfinished.Budget, error) {
	l := v.lobby
	budget, err := v.count(who)
	if err == nil {
		l.move(v, nil)
		return budget, nil
	}
	l.limits.note(who, tooManyConnections, err)
	l.move(v, &l.unproven)
	time.AfterFunc(refusalTime, func() { _ = v.Conn.Close() }) // who serves it finds out, and closes it too
	return nil, err
}

// count counts v as a connection of a workload, unless it is closed.
func (v *visitor) count(who client) (*unfinished.Budget, error) {
	v.lobby.mu.Lock()
	defer v.lobby.mu.Unlock()
	if v.gone {
		return nil, nil
	}
	w, err := v.lobby.limits.enter(who)
	if err != nil {
		return nil, err
	}
	v.client = &who
	return w.unfinished, nil
}

// overflow notes that v is closed because its workload does not end its requests.
func (v *visitor) overflow() {
	v.lobby.mu.Lock()
	who := v.client
	v.lobby.mu.Unlock()
	if who != nil {
		v.lobby.limits.note(*who, tooMuchUnfinished, unfinished.ErrTooMuch)
	}
}
