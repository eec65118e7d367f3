package dns

import (
	"cmp"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"syscall"

	"github.com/hashicorp/go-hclog"
	"github.com/miekg/dns"
	"golang.org/x/net/netutil"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

const (
	ttl = 30 // of answers from the table, in seconds
	// maxForwards is the maximum number of queries that wait for another server. More are refused.
	maxForwards = 256
	// maxConns is the maximum number of TCP connections at each address.
	maxConns = 128
	// maxQuery is the maximum size of a query over UDP, in bytes.
	maxQuery = 4096
)

// Config is the configuration of a Server.
type Config struct {
	// Addresses are those that the server listens on, over UDP and TCP.
	Addresses []netip.AddrPort
	// Sockets are inherited from the service manager, for some of Addresses. The service manager
	// keeps them open.
	Sockets []*os.File
	// Servers are host:port of the servers to forward to. If it is empty, they are read from
	// ResolvConf, or from Resolved if ResolvConf names only systemd-resolved.
	Servers []string
	// ResolvConf is the path of resolv.conf; the default is /etc/resolv.conf. Resolved is the path
	// of systemd-resolved's; the default is /run/systemd/resolve/resolv.conf.
	ResolvConf, Resolved string
	Log                  hclog.Logger
}

// Server answers queries. Safe for concurrent use.
type Server struct {
	resolvers *resolvConf      // set once
	log       hclog.Logger     // set once
	udp       []net.PacketConn // set once
	tcp       []net.Listener   // set once
	addresses []netip.AddrPort // set once
	forwards  chan struct{}    // capacity maxForwards
	exchange  exchangeFunc     // set once; tests replace it
	table     atomic.Pointer[Table]

	preferred atomic.Uint32 // index of the server that answered last
	failing   atomic.Bool   // no server answered the last forwarded query

	answered, forwarded, failed atomic.Uint64
}

// exchangeFunc asks a server over "udp" or "tcp".
type exchangeFunc func(ctx context.Context, network, server string, query *dns.Msg) (*dns.Msg, error)

// State is the state of a Server.
type State struct {
	// Names is the number of names of the mesh.
	Names int
	// Servers are those that queries for all other names are forwarded to.
	Servers []string
	// Problem is why Servers are out of date or do not answer; empty if they answer.
	Problem string
	// Answered counts queries that the table answered, and Forwarded those that another server
	// answered. Failed counts those that no server answered, and those beyond maxForwards.
	Answered, Forwarded, Failed uint64
}

// Listen opens the ports. Errors are those of net.Listen.
func Listen(ctx context.Context, c Config) (_ *Server, err error) {
	log := c.Log.Named("dns")
	conf := &resolvConf{path: cmp.Or(c.ResolvConf, "/etc/resolv.conf"),
		resolved: cmp.Or(c.Resolved, "/run/systemd/resolve/resolv.conf"), servers: c.Servers, own: c.Addresses}
	s := &Server{resolvers: conf, log: log, addresses: c.Addresses, forwards: make(chan struct{}, maxForwards),
		exchange: exchange}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	lc := net.ListenConfig{Control: freebind}
	for _, a := range c.Addresses {
		u := inherited(c.Sockets, net.FilePacketConn, net.PacketConn.LocalAddr, a)
		if u == nil {
			if u, err = lc.ListenPacket(ctx, "udp", a.String()); err != nil {
				return nil, err
			}
		}
		s.udp = append(s.udp, u)
		l := inherited(c.Sockets, net.FileListener, net.Listener.Addr, a)
		if l == nil {
			if l, err = lc.Listen(ctx, "tcp", a.String()); err != nil {
				return nil, err
			}
		}
		s.tcp = append(s.tcp, netutil.LimitListener(l, maxConns))
	}
	return s, nil
}

// inherited returns the socket of the kind that open accepts and that has an address; nil if there
// is none.
func inherited[T io.Closer](files []*os.File, open func(*os.File) (T, error), address func(T) net.Addr,
	at netip.AddrPort) (none T) {
	for _, f := range files {
		s, err := open(f)
		if err != nil {
			continue // a UDP socket where a TCP one is wanted, or the reverse
		}
		if address(s).String() == at.String() {
			return s
		}
		_ = s.Close() // open duplicated the file descriptor
	}
	return none
}

// freebind allows the server to bind to an address that the machine does not have yet. The
// interception rules add intercept.Address6, before or after the agent starts.
func freebind(network, _ string, c syscall.RawConn) (err error) {
	level, option := unix.IPPROTO_IP, unix.IP_FREEBIND
	if network == "udp6" || network == "tcp6" {
		level, option = unix.IPPROTO_IPV6, unix.IPV6_FREEBIND
	}
	control := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), level, option, 1) })
	return errors.Join(control, err)
}

// Close closes the ports of a Server that does not run.
func (s *Server) Close() error {
	var errs []error
	for _, u := range s.udp {
		errs = append(errs, u.Close())
	}
	for _, l := range s.tcp {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}

// Run answers queries until ctx ends, and closes the ports.
func (s *Server) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	handler := func(network string) dns.Handler {
		return dns.HandlerFunc(func(w dns.ResponseWriter, query *dns.Msg) {
			if err := w.WriteMsg(s.answer(ctx, network, query)); err != nil {
				s.log.Debug("answer a query", "error", err)
			}
		})
	}
	for _, u := range s.udp {
		g.Go(func() error {
			return serve(ctx, &dns.Server{PacketConn: u, UDPSize: maxQuery, Handler: handler("udp")})
		})
	}
	for _, l := range s.tcp {
		g.Go(func() error { return serve(ctx, &dns.Server{Listener: l, Handler: handler("tcp")}) })
	}
	return g.Wait()
}

// serve runs one server until ctx ends.
func serve(ctx context.Context, server *dns.Server) error {
	started, ended := make(chan struct{}), make(chan error, 1)
	server.NotifyStartedFunc = func() { close(started) }
	go func() { ended <- server.ActivateAndServe() }()
	select {
	case err := <-ended:
		return err
	case <-started:
	}
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	err := server.ShutdownContext(context.Background()) // waits for queries, which end with ctx
	return errors.Join(err, <-ended)
}

// SetTable replaces the names of the mesh.
func (s *Server) SetTable(t *Table) { s.table.Store(t) }

// Addresses are those that the server listens on.
func (s *Server) Addresses() []netip.AddrPort { return s.addresses }

// State returns the current state.
func (s *Server) State() State {
	servers, problem := s.resolvers.get()
	if problem == "" && s.failing.Load() {
		problem = "they do not answer"
	}
	return State{Names: s.table.Load().Len(), Servers: servers, Problem: problem, Answered: s.answered.Load(),
		Forwarded: s.forwarded.Load(), Failed: s.failed.Load()}
}

// answer returns the response to a query over "udp" or "tcp".
func (s *Server) answer(ctx context.Context, network string, query *dns.Msg) *dns.Msg {
	if len(query.Question) != 1 {
		return new(dns.Msg).SetRcode(query, dns.RcodeFormatError)
	}
	opt := query.IsEdns0()
	q := query.Question[0]
	found, known := s.table.Load().lookup(dns.CanonicalName(q.Name))
	var r *dns.Msg
	if known && q.Qclass == dns.ClassINET && (q.Qtype == dns.TypeA || q.Qtype == dns.TypeAAAA) {
		s.answered.Add(1)
		r = found.reply(query)
		if opt != nil {
			r.SetEdns0(maxQuery, opt.Do())
		}
	} else {
		servers, _ := s.resolvers.get()
		r = s.forward(ctx, network, query, servers)
		if known && r.Rcode == dns.RcodeNameError {
			r.Rcode = dns.RcodeSuccess // the name exists: it has addresses in the mesh
		}
	}
	size := dns.MaxMsgSize
	if network == "udp" {
		size = dns.MinMsgSize
		if opt != nil {
			size = int(opt.UDPSize())
		}
	}
	r.Truncate(size)
	return r
}

// reply returns the addresses of the requested family in random order. If there are none, the
// answer is empty and not NXDOMAIN, because the name exists.
func (a addresses) reply(query *dns.Msg) *dns.Msg {
	r := new(dns.Msg).SetReply(query)
	r.Authoritative, r.RecursionAvailable = true, true
	q := query.Question[0]
	head := dns.RR_Header{Name: q.Name, Rrtype: q.Qtype, Class: dns.ClassINET, Ttl: ttl}
	ips := a.v4
	if q.Qtype == dns.TypeAAAA {
		ips = a.v6
	}
	for _, i := range rand.Perm(len(ips)) {
		if q.Qtype == dns.TypeA {
			r.Answer = append(r.Answer, &dns.A{Hdr: head, A: ips[i].AsSlice()})
		} else {
			r.Answer = append(r.Answer, &dns.AAAA{Hdr: head, AAAA: ips[i].AsSlice()})
		}
	}
	return r
}
