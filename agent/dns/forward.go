package dns

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/miekg/dns"
)

// upstreamTimeout is the maximum time of one query to one server.
const upstreamTimeout = 2 * time.Second

// forward asks the servers one after another, beginning with the one that answered last. It uses a
// response of SERVFAIL or REFUSED only if no server has another one.
func (s *Server) forward(ctx context.Context, network string, query *dns.Msg, servers []string) *dns.Msg {
	select {
	case s.forwards <- struct{}{}:
		defer func() { <-s.forwards }()
	default:
		s.failed.Add(1)
		return new(dns.Msg).SetRcode(query, dns.RcodeRefused)
	}
	out := query.Copy()
	out.Id = dns.Id() // an application's may be easy to guess
	var last *dns.Msg
	first := int(s.preferred.Load())
	for i := range servers {
		at := (first + i) % len(servers)
		r, err := s.exchange(ctx, network, servers[at], out)
		switch {
		case err != nil: // the next one may answer
		case r.Rcode == dns.RcodeServerFailure || r.Rcode == dns.RcodeRefused:
			last = r
		default:
			s.preferred.Store(uint32(at))
			return s.forwardedReply(query, r)
		}
	}
	if last != nil {
		return s.forwardedReply(query, last)
	}
	s.failed.Add(1)
	s.failing.Store(true)
	return new(dns.Msg).SetRcode(query, dns.RcodeServerFailure)
}

func (s *Server) forwardedReply(query, r *dns.Msg) *dns.Msg {
	s.forwarded.Add(1)
	s.failing.Store(false)
	r.Id = query.Id
	return r
}

// exchange asks a server over a new socket, so that the source port is random. It ends with ctx.
func exchange(ctx context.Context, network, server string, query *dns.Msg) (*dns.Msg, error) {
	client := dns.Client{Net: network, Timeout: upstreamTimeout, UDPSize: maxQuery}
	conn, err := client.DialContext(ctx, server)
	if err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })() // a second Close only repeats that it is closed
	r, _, err := client.ExchangeWithConnContext(ctx, query, conn)
	if err := errors.Join(err, conn.Close()); err != nil {
		return nil, err
	}
	if len(r.Question) != 1 || r.Question[0].Qtype != query.Question[0].Qtype ||
		!strings.EqualFold(r.Question[0].Name, query.Question[0].Name) {
		return nil, errors.New(server + " answers another question")
	}
	return r, nil
}
