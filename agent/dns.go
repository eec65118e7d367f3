package agent

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/ashore-mesh/ashore/agent/dns"
	"github.com/ashore-mesh/ashore/agent/intercept"
)

// dnsAddresses are the addresses of the DNS port. If the workload's own address is a loopback one,
// it is that, so that several workloads can share a machine. Otherwise it is 127.0.0.1, and also
// intercept.Address6 if IPv6 traffic is intercepted.
func (s *Settings) dnsAddresses() []netip.AddrPort {
	at := func(ip netip.Addr) netip.AddrPort { return netip.AddrPortFrom(ip, uint16(s.Ports.DNS)) }
	if s.own().IsLoopback() {
		return []netip.AddrPort{at(s.own())}
	}
	out := []netip.AddrPort{at(netip.AddrFrom4([4]byte{127, 0, 0, 1}))}
	if s.Workload.Interception == "tproxy" && intercept.HasIPv6() {
		out = append(out, at(netip.MustParseAddr(intercept.Address6)))
	}
	return out
}

// capturesDNS reports whether the rules redirect the machine's DNS queries to the agent.
func (s *Settings) capturesDNS() bool {
	return s.Workload.Interception == "tproxy" && s.Ports.DNS != 0
}

// dnsServer parses the address of a DNS server, with or without a port. It returns host:port.
func dnsServer(text string) (string, error) {
	if ip, err := netip.ParseAddr(text); err == nil {
		return netip.AddrPortFrom(ip, 53).String(), nil
	}
	at, err := netip.ParseAddrPort(text)
	return at.String(), err
}

// listenDNS opens the DNS port and returns a server that does not run yet.
func (a *Agent) listenDNS(ctx context.Context) (*dns.Server, error) {
	c := dns.Config{Addresses: a.settings.dnsAddresses(), Sockets: a.sockets, Log: a.log}
	for _, text := range a.settings.DNS.Servers {
		at, err := dnsServer(text)
		if err != nil {
			return nil, &UsageError{"dns.servers", err.Error()}
		}
		c.Servers = append(c.Servers, at)
	}
	s, err := dns.Listen(ctx, c)
	if err != nil {
		const hint = "setting ports.dns; of several workloads on one machine, one can have it"
		return nil, fmt.Errorf("open the DNS port (%s): %w", hint, err)
	}
	s.SetTable(a.names)
	return s, nil
}

// reportDNS adds the line about DNS to a status report.
func (a *Agent) reportDNS(r *Report) {
	if a.dns == nil {
		return
	}
	s := a.dns.State()
	at := a.dns.Addresses()[0]
	if s.Problem != "" {
		r.warn("dns", "make the DNS servers of /etc/resolv.conf reachable, or set dns.servers",
			"%s, names of the mesh: %d; other names are forwarded to %v: %s", at, s.Names, s.Servers, s.Problem)
		return
	}
	r.ok("dns", "%s, names of the mesh: %d; other names are forwarded to %v", at, s.Names, s.Servers)
}
