package agent

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"time"
)

// dialTimeout bounds the connection and the handshake with a control plane.
const dialTimeout = 10 * time.Second

// dial opens a connection to a control plane and verifies it. It comes from the workload's own
// address where that is possible: another one the control plane would not register. Zero: any
// address, IPv4 first. Errors name the address, what is wrong and what to do; a server that is not
// trusted gives a ServerError.
func dial(ctx context.Context, address string, own netip.Addr, cfg *tls.Config) (*tls.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	cfg = cfg.Clone()
	cfg.NextProtos = []string{"h2"}
	if cfg.ServerName, _, _ = net.SplitHostPort(address); net.ParseIP(cfg.ServerName) != nil {
		cfg.ServerName = "" // RFC 6066: an address is not a server name
	}
	targets, err := targetsOf(ctx, address, own)
	if err != nil {
		return nil, dialError(address, err)
	}
	conn, err := dialFirst(ctx, targets, own, cfg)
	if err != nil {
		return nil, dialError(address, err)
	}
	return conn, nil
}

// targetsOf are the addresses that a name stands for, first those of the workload's own IP version,
// or IPv4. They are in another order each time: behind each may be a replica of its own, and one
// that is stuck must not be all that is ever tried.
func targetsOf(ctx context.Context, address string, own netip.Addr) ([]string, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil || net.ParseIP(host) != nil {
		return []string{address}, err
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, err
	}
	rand.Shuffle(len(ips), func(i, j int) { ips[i], ips[j] = ips[j], ips[i] })
	other := func(ip netip.Addr) int {
		if ip.Unmap().Is6() == own.Is6() {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(ips, func(a, b netip.Addr) int { return other(a) - other(b) })
	var out []string
	for _, ip := range ips {
		out = append(out, net.JoinHostPort(ip.Unmap().String(), port))
	}
	return out, nil
}

// SourceAddress is this machine's address on the way to the first control plane that there is a way
// to. Nothing is sent but queries for names.
func SourceAddress(ctx context.Context, planes []string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	var errs []error
	for _, plane := range planes {
		targets, err := targetsOf(ctx, plane, netip.Addr{})
		for _, target := range targets {
			var d net.Dialer
			var conn net.Conn
			if conn, err = d.DialContext(ctx, "udp", target); err == nil {
				return hostOf(conn.LocalAddr()), conn.Close()
			}
		}
		errs = append(errs, dialError(plane, err))
	}
	return "", errors.Join(errs...)
}

// dialFirst tries one target after another until one is the control plane. Each has its part of the
// time.
func dialFirst(ctx context.Context, targets []string, own netip.Addr, cfg *tls.Config) (*tls.Conn, error) {
	var errs []error
	for _, target := range targets {
		conn, err := dialTLS(ctx, target, own, cfg, dialTimeout/time.Duration(len(targets)))
		if err == nil {
			return conn, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

func dialTLS(ctx context.Context, target string, own netip.Addr, cfg *tls.Config, wait time.Duration) (*tls.Conn,
	error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	var d net.Dialer
	if to, err := netip.ParseAddrPort(target); err == nil && own.IsValid() && !own.IsLoopback() &&
		to.Addr().Is4() == own.Is4() {
		d.LocalAddr = &net.TCPAddr{IP: own.AsSlice()}
	}
	raw, err := d.DialContext(ctx, "tcp", target)
	if errors.Is(err, syscall.EADDRNOTAVAIL) { // its own address is that of a NAT
		d.LocalAddr = nil
		raw, err = d.DialContext(ctx, "tcp", target)
	}
	if err != nil {
		return nil, err
	}
	conn := tls.Client(raw, cfg)
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = raw.Close() // the handshake's error is the one that counts
		return nil, err
	}
	return conn, nil
}

// dialError says why a control plane is not reached.
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
		text = "the name " + dns.Name + " does not resolve: check its spelling and this machine's DNS (/etc/resolv.conf), or give the address"
	case errors.As(err, &dns):
		text = "the name " + dns.Name + " cannot be looked up: this machine's DNS does not answer (/etc/resolv.conf)"
	case errors.Is(err, syscall.ECONNREFUSED):
		text = "nothing listens there: see whether ashored runs on that machine and serves TLS on this port (15012), and that the address is right"
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

// hostOf is an address without its port.
func hostOf(a net.Addr) string {
	host, _, err := net.SplitHostPort(a.String())
	if err != nil {
		return a.String()
	}
	return host
}
