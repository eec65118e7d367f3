package dns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/ashore-mesh/ashore/internal/testlog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// encode is a NameTable as the control plane sends it.
func encode(hosts map[string][]string) []byte {
	field := func(b []byte, n protowire.Number, v []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(b, n, protowire.BytesType), v)
	}
	var out []byte
	for host, ips := range hosts {
		var info []byte
		for _, ip := range ips {
			info = field(info, 1, []byte(ip))
		}
		out = field(out, 1, field(field(nil, 1, []byte(host)), 2, field(info, 2, []byte("External"))))
	}
	return out
}

func table(t testing.TB, hosts map[string][]string) *Table {
	t.Helper()
	out, err := ReadTable(encode(hosts))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// mesh is a table with a service of both families, one of IPv4, a wildcard and many endpoints.
func mesh(t testing.TB) *Table {
	many := make([]string, 100)
	for i := range many {
		many[i] = fmt.Sprintf("10.1.0.%d", i)
	}
	return table(t, map[string][]string{
		"backend.shop.svc.cluster.local": {"240.240.0.1"}, "both.test": {"10.0.0.1", "fd00::1", "not an address"},
		"*.wild.test": {"10.0.0.9"}, "many.test": many,
	})
}

// start runs a server that forwards to servers, or as resolv.conf says if there are none.
func start(t *testing.T, resolvConf string, servers ...string) *Server {
	t.Helper()
	return run(t, listen(t, resolvConf, servers...))
}

func listen(t *testing.T, resolvConf string, servers ...string) *Server {
	t.Helper()
	path := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(path, []byte(resolvConf), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := Listen(t.Context(), Config{ResolvConf: path, Resolved: path + ".resolved", Servers: servers, Log: testlog.New(t),
		Addresses: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:0")}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func run(t *testing.T, s *Server) *Server {
	ctx, end := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		end()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return s
}

// upstream runs another DNS server at a port that both networks share.
func upstream(t *testing.T, handler dns.HandlerFunc) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	u, err := net.ListenPacket("udp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(context.Background())
	done := make(chan error, 2)
	go func() { done <- serve(ctx, &dns.Server{Listener: l, Handler: handler}) }()
	go func() { done <- serve(ctx, &dns.Server{PacketConn: u, Handler: handler}) }()
	t.Cleanup(func() {
		end()
		if err := errors.Join(<-done, <-done); err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

// example answers A queries below example.com, and says that no other name exists.
func example(w dns.ResponseWriter, q *dns.Msg) {
	r := new(dns.Msg).SetReply(q)
	switch name := q.Question[0].Name; {
	case !dns.IsSubDomain("example.com.", name):
		r.Rcode = dns.RcodeNameError
	case name == "large.example.com.":
		for i := range 100 {
			r.Answer = append(r.Answer, &dns.A{Hdr: dns.RR_Header{Name: name, Rrtype: dns.TypeA, Class: dns.ClassINET,
				Ttl: 7},
				A: net.IPv4(10, 2, 0, byte(i))})
		}
		if _, udp := w.RemoteAddr().(*net.UDPAddr); udp {
			r.Truncate(dns.MinMsgSize)
		}
	case q.Question[0].Qtype == dns.TypeA:
		r.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 7},
			A: net.IPv4(192, 0, 2, 1)}}
	}
	_ = w.WriteMsg(r) // the client tells
}

// ask sends a query and returns its response.
func (s *Server) ask(t *testing.T, network, name string, qtype uint16, edit func(*dns.Msg)) *dns.Msg {
	t.Helper()
	q := new(dns.Msg).SetQuestion(name, qtype)
	if edit != nil {
		edit(q)
	}
	at := s.udp[0].LocalAddr().String()
	if network == "tcp" {
		at = s.tcp[0].Addr().String()
	}
	c := dns.Client{Net: network, Timeout: 20 * time.Second}
	r, _, err := c.ExchangeContext(t.Context(), q, at)
	if err != nil {
		t.Fatalf("%s %s: %v", name, dns.TypeToString[qtype], err)
	}
	return r
}

// text is a response in one line: "NOERROR A 10.0.0.1/30".
func text(r *dns.Msg) string {
	out := []string{dns.RcodeToString[r.Rcode]}
	for _, rr := range r.Answer {
		v := strings.TrimPrefix(rr.String(), rr.Header().String())
		out = append(out, fmt.Sprintf("%s %s %s/%d", rr.Header().Name, dns.TypeToString[rr.Header().Rrtype], v,
			rr.Header().Ttl))
	}
	return strings.Join(out, ", ")
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	s := start(t, "", upstream(t, example))
	s.SetTable(mesh(t))
	tests := []struct {
		what, name string
		qtype      uint16
		want       string
	}{
		{"IPv4", "backend.shop.svc.cluster.local.", dns.TypeA, "NOERROR, backend.shop.svc.cluster.local. A 240.240.0.1/30"},
		{"the other family", "backend.shop.svc.cluster.local.", dns.TypeAAAA, "NOERROR"},
		{"letters as asked", "BackEnd.shop.svc.cluster.LOCAL.", dns.TypeA, "NOERROR, BackEnd.shop.svc.cluster.LOCAL. A " +
			"240.240.0.1/30"},
		{"both families, IPv4", "both.test.", dns.TypeA, "NOERROR, both.test. A 10.0.0.1/30"},
		{"both families, IPv6", "both.test.", dns.TypeAAAA, "NOERROR, both.test. AAAA fd00::1/30"},
		{"wildcard", "a.b.wild.test.", dns.TypeA, "NOERROR, a.b.wild.test. A 10.0.0.9/30"},
		{"not the wildcard's own domain", "wild.test.", dns.TypeA, "NXDOMAIN"},
		{"another type of a name of the mesh", "both.test.", dns.TypeTXT, "NOERROR"},
		{"another name", "www.example.com.", dns.TypeA, "NOERROR, www.example.com. A 192.0.2.1/7"},
		{"another name, no data", "www.example.com.", dns.TypeAAAA, "NOERROR"},
		{"no such name", "nobody.test.", dns.TypeA, "NXDOMAIN"},
	}
	for _, tt := range tests {
		t.Run(tt.what, func(t *testing.T) {
			t.Parallel()
			for _, network := range []string{"udp", "tcp"} {
				if got := text(s.ask(t, network, tt.name, tt.qtype, nil)); got != tt.want {
					t.Errorf("over %s: got %s, want %s", network, got, tt.want)
				}
			}
		})
	}
}

// Without a table queries are forwarded; a new table counts from the next query on.
func TestTables(t *testing.T) {
	t.Parallel()
	s := start(t, "", upstream(t, example))
	ask := func(want string) {
		t.Helper()
		if got := text(s.ask(t, "udp", "a.example.com.", dns.TypeA, nil)); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	ask("NOERROR, a.example.com. A 192.0.2.1/7")
	s.SetTable(table(t, map[string][]string{"a.example.com": {"10.0.0.1"}}))
	ask("NOERROR, a.example.com. A 10.0.0.1/30")
	s.SetTable(table(t, nil))
	ask("NOERROR, a.example.com. A 192.0.2.1/7")
	if got := s.State(); got.Answered != 1 || got.Forwarded != 2 || got.Names != 0 || got.Problem != "" {
		t.Errorf("state: %+v", got)
	}
}

// What does not fit a packet of UDP is marked as truncated, and whole over TCP and with EDNS.
func TestTruncation(t *testing.T) {
	t.Parallel()
	s := start(t, "", upstream(t, example))
	s.SetTable(mesh(t))
	edns := func(q *dns.Msg) { q.SetEdns0(4096, false) }
	for _, tt := range []struct {
		name, network string
		edit          func(*dns.Msg)
		truncated     bool
	}{
		{"many.test.", "udp", nil, true},
		{"many.test.", "udp", edns, false},
		{"many.test.", "tcp", nil, false},
		{"large.example.com.", "udp", nil, true},
		{"large.example.com.", "tcp", nil, false},
	} {
		r := s.ask(t, tt.network, tt.name, dns.TypeA, tt.edit)
		if r.Truncated != tt.truncated || (len(r.Answer) == 100) == tt.truncated {
			t.Errorf("%s over %s: truncated %v with %d answers, want %v", tt.name, tt.network, r.Truncated,
				len(r.Answer), tt.truncated)
		}
		if asked, got := tt.edit != nil, r.IsEdns0() != nil; asked != got {
			t.Errorf("%s over %s: EDNS in the response %v, in the query %v", tt.name, tt.network, got, asked)
		}
	}
}

func TestForward(t *testing.T) {
	t.Parallel()
	answer := func(rcode int) dns.HandlerFunc {
		return func(w dns.ResponseWriter, q *dns.Msg) { _ = w.WriteMsg(new(dns.Msg).SetRcode(q, rcode)) }
	}
	liar := func(w dns.ResponseWriter, q *dns.Msg) {
		r := new(dns.Msg).SetReply(q)
		r.Question[0].Name = "liar.example.com."
		_ = w.WriteMsg(r)
	}
	closed := "127.0.0.1:1"
	good := "NOERROR, a.example.com. A 192.0.2.1/7"
	for _, tt := range []struct {
		what    string
		servers []string
		want    string
	}{
		{"the first is away", []string{closed, upstream(t, example)}, good},
		{"the first fails", []string{upstream(t, answer(dns.RcodeServerFailure)), upstream(t, example)}, good},
		{"the first refuses", []string{upstream(t, answer(dns.RcodeRefused)), upstream(t, example)}, good},
		{"the first answers another question", []string{upstream(t, liar), upstream(t, example)}, good},
		{"none answers", []string{closed, closed}, "SERVFAIL"},
		{"the last refuses", []string{closed, upstream(t, answer(dns.RcodeRefused))}, "REFUSED"},
		{"none is known", nil, "SERVFAIL"},
	} {
		t.Run(tt.what, func(t *testing.T) {
			t.Parallel()
			s := start(t, "", tt.servers...)
			if got := text(s.ask(t, "udp", "a.example.com.", dns.TypeA, nil)); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
			if got := s.State(); (got.Problem != "") != (tt.want == "SERVFAIL") {
				t.Errorf("problem: %q", got.Problem)
			}
		})
	}
}

// A server that does not answer takes no more than the bound of queries, and none of the mesh's.
func TestConcurrency(t *testing.T) {
	t.Parallel()
	s := listen(t, "", "192.0.2.1:53")
	s.SetTable(mesh(t))
	asked, release := make(chan struct{}), make(chan struct{})
	s.exchange = func(_ context.Context, _, _ string, q *dns.Msg) (*dns.Msg, error) {
		asked <- struct{}{}
		<-release
		return new(dns.Msg).SetReply(q), nil
	}
	run(t, s)
	query := new(dns.Msg).SetQuestion("a.example.com.", dns.TypeA)
	answers := make(chan *dns.Msg)
	for range maxForwards {
		go func() { answers <- s.answer(t.Context(), "udp", query) }()
	}
	for range maxForwards {
		<-asked
	}
	if got := text(s.ask(t, "udp", "b.example.com.", dns.TypeA, nil)); got != "REFUSED" {
		t.Errorf("one too many: got %s, want REFUSED", got)
	}
	if got := text(s.ask(t, "udp", "both.test.", dns.TypeA, nil)); got != "NOERROR, both.test. A 10.0.0.1/30" {
		t.Errorf("a name of the mesh: got %s", got)
	}
	close(release)
	for range maxForwards {
		if got := text(<-answers); got != "NOERROR" {
			t.Errorf("got %s", got)
		}
	}
}

// Every packet that can be read gets one response that belongs to it and fits.
func FuzzQuery(f *testing.F) {
	for _, edit := range []func(*dns.Msg){
		func(*dns.Msg) {},
		func(q *dns.Msg) { q.SetEdns0(1232, true) },
		func(q *dns.Msg) { q.SetTsig("key.", dns.HmacSHA256, 300, 1) },
		func(q *dns.Msg) { q.Question = append(q.Question, q.Question[0]) },
		func(q *dns.Msg) {
			q.Answer = append(q.Answer, &dns.NULL{Hdr: dns.RR_Header{Name: ".", Rrtype: dns.TypeNULL}})
		},
	} {
		for _, name := range []string{"both.test.", "a.wild.test.corp.test.", "many.test.", "."} {
			q := new(dns.Msg).SetQuestion(name, dns.TypeA)
			edit(q)
			packet, err := q.Pack()
			if err != nil {
				f.Fatal(err)
			}
			f.Add(packet)
		}
	}
	s := &Server{resolvers: &resolvConf{servers: []string{"192.0.2.1:53"}}, log: testlog.New(f),
		forwards: make(chan struct{}, maxForwards)}
	s.SetTable(mesh(f))
	s.exchange = func(_ context.Context, _, _ string, q *dns.Msg) (*dns.Msg, error) {
		if _, err := q.Pack(); err != nil {
			return nil, err
		}
		return new(dns.Msg).SetReply(q), nil
	}
	f.Fuzz(func(t *testing.T, packet []byte) {
		q := new(dns.Msg)
		if q.Unpack(packet) != nil {
			return
		}
		size := dns.MinMsgSize
		if opt := q.IsEdns0(); opt != nil {
			size = max(size, int(opt.UDPSize()))
		}
		r := s.answer(t.Context(), "udp", q)
		out, err := r.Pack()
		switch {
		case err != nil:
			t.Errorf("%v: the response cannot be sent: %v", q, err)
		case r.Id != q.Id || !r.Response:
			t.Errorf("%v: answered by %v", q, r)
		case len(out) > size && r.IsTsig() == nil:
			t.Errorf("%v: %d bytes, want %d at most", q, len(out), size)
		}
	})
}
