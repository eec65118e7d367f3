package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"github.com/ashore-mesh/ashore/internal/machine"
)

// claimPorts opens the status port and, unless Envoy runs already, makes sure that the ports that it will open are free:
// Envoy's own message would name neither the setting nor what to do.
func (a *Agent) claimPorts(ctx context.Context, resumed bool) (net.Listener, error) {
	var status net.Listener
	for _, o := range a.settings.Ports.openPorts() {
		if resumed && o.port != a.settings.Ports.Status {
			continue
		}
		l, err := listenRetry(ctx, a.settings.at(o.port))
		if err != nil {
			if status != nil {
				err = errors.Join(err, status.Close())
			}
			return nil, a.portError(o, err)
		}
		if o.port == a.settings.Ports.Status {
			status = l
			continue
		}
		if err := l.Close(); err != nil {
			if status != nil {
				err = errors.Join(err, status.Close())
			}
			return nil, err
		}
	}
	return status, nil
}

// portRetryTime is how long an address that is in use is waited for: the Envoy of an agent that was killed ends a moment after it.
const portRetryTime = 2 * time.Second

// listenRetry listens at an address as soon as it is free, within portRetryTime.
func listenRetry(ctx context.Context, address string) (net.Listener, error) {
	var c net.ListenConfig
	for end := time.Now().Add(portRetryTime); ; {
		l, err := c.Listen(ctx, "tcp", address)
		if err == nil || !errors.Is(err, syscall.EADDRINUSE) || time.Now().After(end) {
			return l, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Listens are the addresses that the agent and Envoy open on this machine, with the settings that they are from. The
// settings have an address.
func (s *Settings) Listens() map[string]machine.Socket {
	out := map[string]machine.Socket{}
	for _, o := range s.Ports.openPorts() {
		out[o.names()] = machine.Socket{Address: netip.AddrPortFrom(s.own(), uint16(o.port))}
	}
	if s.Ports.DNS != 0 {
		out["DNS (setting ports.dns)"] = machine.Socket{Address: s.dnsAddresses()[0]}
	}
	if s.Workload.Interception != "none" {
		out["outgoing connections"] = machine.Socket{Address: netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), outboundPort)}
		out["incoming connections"] = machine.Socket{Address: netip.AddrPortFrom(netip.IPv4Unspecified(), inboundPort)}
	}
	return out
}

// portOwner names the program that has a TCP address.
func portOwner(address string) string {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return machine.Owner{}.String()
	}
	owner, err := machine.PortOwner(machine.Socket{Address: at})
	if err != nil || owner == nil {
		owner = &machine.Owner{} // it has ended since, or /proc cannot be read
	}
	return owner.String()
}

func (a *Agent) portError(o openPort, err error) error {
	at := a.settings.at(o.port)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("%s is in use (%s): %s has it; end it, set another port, or give each workload its own address",
			at, o.names(), portOwner(at))
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return fmt.Errorf("%s is not an address of this machine (setting workload.addresses, or --address): %w", a.settings.Workload.Addresses[0], err)
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("%s may not be opened by this user (%s): set a port above 1023: %w", at, o.names(), err)
	}
	return fmt.Errorf("open %s (%s): %w", at, o.names(), err)
}
