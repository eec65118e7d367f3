package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/ashore-mesh/ashore/registry"
)

// checkedPort is a port that has to be served.
type checkedPort struct {
	port uint16
	// network and address are where the application listens; empty: at port on the workload's
	// address.
	network, address string
}

// readCheckedPort reads "8080", "8080=127.0.0.1:9090" or "8080=unix:///run/app.sock".
func readCheckedPort(text string) (checkedPort, bool) {
	number, to, other := strings.Cut(text, "=")
	n, err := strconv.ParseUint(number, 10, 16)
	p := checkedPort{port: uint16(n)}
	switch path, unix := strings.CutPrefix(to, "unix://"); {
	case unix:
		p.network, p.address = "unix", path
	case other:
		p.network, p.address = "tcp", to
		if _, wrong := netip.ParseAddrPort(to); wrong != nil {
			return p, false
		}
	}
	return p, err == nil && n > 0
}

// portChecker finds the states of the workload's ports.
type portChecker struct {
	own netip.Addr
	// listens is Config.Listens. If it is not nil, Envoy has to listen for an application on
	// loopback.
	listens func(context.Context) (map[string]bool, error)
	known   map[string]bool // the last result of listens
}

func newPortChecker(c Config) portChecker {
	return portChecker{own: netip.MustParseAddr(c.Addresses[0]), listens: c.Listens}
}

// check returns the states of the ports. Errors: no port is served, or they cannot be checked.
func (c *portChecker) check(ctx context.Context, ports []checkedPort) (registry.PortStates, error) {
	if c.listens != nil {
		switch now, err := c.listens(ctx); {
		case err == nil:
			c.known = now
		case c.known == nil:
			return "", fmt.Errorf("ask Envoy for its listeners: %w", err)
		}
	}
	states := map[uint32]registry.PortState{}
	var errs []error
	served := false
	for _, p := range ports {
		state, err := c.state(ctx, p)
		states[uint32(p.port)] = state
		served = served || state == registry.PortServed || state == registry.PortListener
		errs = append(errs, err)
	}
	if len(ports) == 0 || served {
		return registry.NewPortStates(states), nil
	}
	return registry.NewPortStates(states), errors.Join(errs...)
}

// state returns the state of a port, and why it cannot be used.
func (c *portChecker) state(ctx context.Context, p checkedPort) (registry.PortState, error) {
	if p.address != "" {
		return served(connects(ctx, p.network, p.address))
	}
	own := netip.AddrPortFrom(c.own, p.port).String()
	if c.listens == nil {
		return served(connects(ctx, "tcp", own))
	}
	envoy := c.known[own]
	if !envoy && connects(ctx, "tcp", own) == nil {
		return registry.PortServed, nil
	}
	loopback := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	if c.own.Is6() {
		loopback = netip.IPv6Loopback()
	}
	at := netip.AddrPortFrom(loopback, p.port).String()
	switch {
	case c.known[at]:
		return registry.PortClosed, fmt.Errorf("envoy listens at %s for outgoing connections", at)
	case connects(ctx, "tcp", at) != nil:
		return registry.PortClosed, fmt.Errorf("nothing listens at %s or %s", own, at)
	case envoy:
		return registry.PortListener, nil
	default:
		return registry.PortLoopback, fmt.Errorf("envoy does not listen at %s yet", own)
	}
}

func served(err error) (registry.PortState, error) {
	if err != nil {
		return registry.PortClosed, err
	}
	return registry.PortServed, nil
}

// connectTimeout bounds the check of one port.
const connectTimeout = 300 * time.Millisecond

// connects returns an error if no program accepts connections at an address. A timeout is no error:
// the kernel refuses connections to a port without a listener, and drops them while a listener's
// queue is full.
func connects(ctx context.Context, network, address string) error {
	d := net.Dialer{Timeout: connectTimeout}
	conn, err := d.DialContext(ctx, network, address)
	switch {
	case err == nil && network == "tcp" && conn.LocalAddr().String() == conn.RemoteAddr().String():
		// connected to itself
		return errors.Join(fmt.Errorf("%s: %w", address, syscall.ECONNREFUSED), conn.Close())
	case err == nil:
		return conn.Close()
	case os.IsTimeout(err) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, syscall.EAGAIN):
		return nil
	}
	return err
}

// portsText lists ports.
func portsText(ports []checkedPort) string {
	var out []string
	for _, p := range ports {
		out = append(out, strconv.Itoa(int(p.port)))
	}
	slices.Sort(out)
	if len(out) == 1 {
		return "port " + out[0]
	}
	return "ports " + strings.Join(out, ", ")
}
