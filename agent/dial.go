package agent

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"
)

// dialTimeout bounds the connection and the handshake with a control plane.
const dialTimeout = 10 * time.Second

// dial opens a connection to a control plane and verifies the server. If possible it connects from
// own, the workload's address, because the control plane registers only the source address. Zero:
// any address, IPv4 first. Errors say what to do; a server that is not trusted is a ServerError.
func dial(ctx context.Context, address string, own netip.Addr, cfg *tls.Config) (*tls.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	cfg = cfg.Clone()
	cfg.NextProtos = []string{"h2"}
	if cfg.ServerName, _, _ = net.SplitHostPort(address); net.ParseIP(cfg.ServerName) != nil {
		cfg.ServerName = "" // RFC 6066: an address is not a server name
	}
	raw, err := dialTCP(ctx, address, own)
	if err != nil {
		return nil, dialError(address, err)
	}
	conn := tls.Client(raw, cfg)
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = raw.Close() // the handshake's error is the one that counts
		return nil, dialError(address, err)
	}
	return conn, nil
}

// dialTCP connects from own, or by IPv4 if own is zero or a loopback address. If that fails,
// because own is the address of a NAT for example, it connects from any address.
func dialTCP(ctx context.Context, address string, own netip.Addr) (net.Conn, error) {
	d, network := net.Dialer{}, "tcp4"
	if own.IsValid() && !own.IsLoopback() {
		d.LocalAddr, network = net.TCPAddrFromAddrPort(netip.AddrPortFrom(own, 0)), "tcp"
	}
	conn, err := d.DialContext(ctx, network, address)
	if err == nil || ctx.Err() != nil {
		return conn, err
	}
	d.LocalAddr = nil
	return d.DialContext(ctx, "tcp", address)
}

// FindAddress gives a workload without an address this machine's source address towards the first
// control plane that has a route. It sends nothing but DNS queries.
func (s *Settings) FindAddress(ctx context.Context) error {
	if len(s.Workload.Addresses) > 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	var errs []error
	for _, plane := range s.XDS.Addresses {
		var d net.Dialer
		conn, err := d.DialContext(ctx, "udp4", plane)
		if err != nil {
			conn, err = d.DialContext(ctx, "udp", plane)
		}
		if err == nil {
			own := conn.LocalAddr().(*net.UDPAddr).AddrPort().Addr()
			s.Workload.Addresses = []string{own.Unmap().WithZone("").String()}
			return conn.Close()
		}
		errs = append(errs, dialError(plane, err))
	}
	return errors.Join(errs...)
}

// dialError explains why a control plane cannot be reached, and what to do.
func dialError(address string, err error) error {
	var text string
	var untrusted *ServerError
	var dns *net.DNSError
	var timeout net.Error
	var record tls.RecordHeaderError
	switch {
	case errors.As(err, &untrusted):
		return fmt.Errorf("control plane %s is not trusted: %w", address, err)
	case errors.As(err, &dns) && dns.IsNotFound:
		text = "the name " + dns.Name + " does not resolve: check its spelling and this machine's DNS " +
			"(/etc/resolv.conf), or give the address"
	case errors.As(err, &dns):
		text = "the name " + dns.Name + " cannot be looked up: this machine's DNS does not answer (/etc/resolv.conf)"
	case errors.Is(err, syscall.ECONNREFUSED):
		text = "nothing listens there: see whether ashored runs on that machine and serves TLS on this port (15012), and " +
			"that the address is right"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		text = "there is no way to it: check this machine's network and routes"
	case errors.As(err, &record):
		text = "it does not speak TLS: this may be the plaintext port (15010); give the one for TLS (15012)"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		text = fmt.Sprintf("no answer within %s: a firewall may be in the way, or the machine is away", dialTimeout)
	case errors.Is(err, syscall.ECONNRESET):
		text = "it ended the connection: see the log of ashored there"
	default:
		return fmt.Errorf("control plane %s: %w", address, err)
	}
	return fmt.Errorf("control plane %s: %s (%w)", address, text, err)
}
