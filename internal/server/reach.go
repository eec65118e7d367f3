package server

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/ashore-mesh/ashore/internal/settings"
)

// lookupTime is how long a look-up of this machine's own name may take.
const lookupTime = 2 * time.Second

// reach is where agents reach this control plane.
type reach struct {
	// addresses are HOST:PORT, as join commands name them: one, or those of the setting
	// xds.advertise.
	addresses []string
	// notes are what an operator should know who hands the address on.
	notes []string
	// own is the address of this machine itself, whatever is advertised.
	own string
}

// machine is what tells where this machine is reached.
type machine struct {
	// name is its host name; empty when it has none that could stand in a certificate.
	name string
	// lookup finds the addresses of a name.
	lookup func(ctx context.Context, name string) ([]netip.Addr, error)
	// addresses are its own that others may reach: neither loopback nor link-local.
	addresses []netip.Addr
	// outgoing is the one that it has towards other networks; not valid when there are none.
	outgoing func(network string) netip.Addr
}

// thisMachine asks the system.
func thisMachine() machine {
	m := machine{name: settings.MachineName(), outgoing: outgoing,
		lookup: func(ctx context.Context, name string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", name)
		}}
	if m.name == settings.Localhost {
		m.name = ""
	}
	found, _ := net.InterfaceAddrs() // without them its name is what is left
	for _, a := range found {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().IsGlobalUnicast() {
			m.addresses = append(m.addresses, p.Addr().Unmap())
		}
	}
	slices.SortFunc(m.addresses, func(a, b netip.Addr) int {
		return cmp.Or(cmp.Compare(a.BitLen(), b.BitLen()),
			a.Compare(b))
	})
	return m
}

// outgoing asks the kernel by which address it would send to another network. Nothing is sent.
func outgoing(network string) netip.Addr {
	// addresses for documentation: RFC 5737, RFC 3849
	far := map[string]string{"udp4": "192.0.2.1:9", "udp6": "[2001:db8::1]:9"}
	c, err := net.Dial(network, far[network])
	if err != nil {
		return netip.Addr{}
	}
	defer func() { _ = c.Close() }() // nothing was sent
	return c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap()
}

// findReach is where agents reach a listener: what is advertised, its own address, and where that
// is every address, this machine's full name if that leads here, else the address that it has
// towards other networks.
func findReach(ctx context.Context, advertised []string, listener net.Addr, m machine) reach {
	if len(advertised) > 0 {
		return told(advertised...)
	}
	host, port, err := net.SplitHostPort(listener.String())
	ip, _ := netip.ParseAddr(host)
	if err != nil || !ip.IsUnspecified() {
		return told(listener.String())
	}
	if m.leadsHere(ctx) {
		return told(net.JoinHostPort(m.name, port))
	}
	own := m.own(ip.Is4())
	if len(own) == 0 {
		return told(net.JoinHostPort(cmp.Or(m.name, settings.Localhost), port))
	}
	r := told(net.JoinHostPort(own[0].String(), port))
	if len(own) > 1 {
		var others []string
		for _, a := range own[1:] {
			others = append(others, a.String())
		}
		r.notes = append(r.notes, fmt.Sprintf("%s is one of this machine's addresses, which has %s too: where others reach it by one of those, or by a name, set xds.advertise.", own[0], strings.Join(others, ", ")))
	}
	return r
}

// told is a reach by these addresses, with a note for each that only this machine can use.
func told(addresses ...string) reach {
	r := reach{addresses: addresses}
	for _, address := range addresses {
		host, _, err := net.SplitHostPort(address)
		if ip, _ := netip.ParseAddr(host); err == nil && (host == settings.Localhost || ip.IsLoopback()) {
			r.notes = append(r.notes, fmt.Sprintf("%s is reached from this machine alone: for others set xds.address and xds.advertise.", address))
		}
	}
	return r
}

// leadsHere says that others may know the machine by its name: one without a dot is known here
// alone, and one that leads to loopback, as Debian writes it into /etc/hosts, says nothing.
func (m machine) leadsHere(ctx context.Context) bool {
	if !strings.Contains(m.name, ".") {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTime)
	defer cancel()
	found, err := m.lookup(ctx, m.name)
	return err == nil && slices.ContainsFunc(found, func(a netip.Addr) bool {
		return slices.Contains(m.addresses,
			a.Unmap())
	})
}

// own are the addresses of the machine, the one that others most likely reach first; only4: those
// of IPv4.
func (m machine) own(only4 bool) []netip.Addr {
	var out []netip.Addr
	for _, network := range []string{"udp4", "udp6"} {
		if a := m.outgoing(network); a.IsValid() && slices.Contains(m.addresses, a) {
			out = append(out, a)
		}
	}
	for _, a := range m.addresses {
		if !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	return slices.DeleteFunc(out, func(a netip.Addr) bool { return only4 && !a.Is4() })
}
