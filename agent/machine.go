package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/ashore-mesh/ashore/internal/machine"
	"github.com/ashore-mesh/ashore/internal/task"
)

// Program returns the program to run: PackagedEnvoy for units; else Path, "envoy" in PATH, or
// PackagedEnvoy. It checks that the program starts and is supported. The error is a UsageError.
func (e *Envoy) Program(ctx context.Context) (string, error) {
	path := e.Path
	switch {
	case e.units:
		path = cmp.Or(e.program, PackagedEnvoy)
	case path == "":
		path = PackagedEnvoy
		if found, err := exec.LookPath("envoy"); err == nil {
			path = found
		}
	}
	path, err := filepath.Abs(path)
	if err == nil {
		err = machine.CheckEnvoy(ctx, path)
	}
	if err != nil {
		return "", &UsageError{"envoy.path", err.Error() + ", or name Envoy's program (--envoy)"}
	}
	return path, nil
}

// portRetryTime is how long the agent waits for ports in use: the Envoy of a killed agent ends a
// moment after it.
const portRetryTime = 2 * time.Second

// checkPorts makes sure that the ports are free that the agent and Envoy will open, unless Envoy
// runs already: Envoy's own message would name neither the setting nor what to do.
func (a *Agent) checkPorts(ctx context.Context, resumed bool) error {
	s := a.settings
	err := CheckAddress(ctx, &s)
	if err != nil || resumed {
		return err
	}
	s.Ports.DNS = 0 // the service manager may have opened it for this agent
	for end := time.Now().Add(portRetryTime); ; {
		err := PortsFree(&s, machine.PortOwner)
		if err == nil || time.Now().After(end) || !task.Sleep(ctx, 50*time.Millisecond) {
			return err
		}
	}
}

// PortsFree returns an error for each address of s.listens that a program has. owner finds that
// program, as machine.PortOwner does.
func PortsFree(s *Settings, owner func(machine.Socket) (*machine.Owner, error)) error {
	var errs []error
	listens := s.listens()
	for _, name := range slices.Sorted(maps.Keys(listens)) {
		socket := listens[name]
		by, err := owner(socket)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("look for the owner of port %d: %w", socket.Address.Port(), err))
		case by != nil:
			errs = append(errs, fmt.Errorf("%s is in use by %s (needed for %s): end that program, or give this workload another "+
				"address (--address)", socket.Address, by, name))
		}
	}
	return errors.Join(errs...)
}

// listens are the addresses that the agent and Envoy open on this machine, by what they are for.
// The settings have an address.
func (s *Settings) listens() map[string]machine.Socket {
	out := map[string]machine.Socket{}
	for use, port := range map[string]uint16{"status": statusPort, "health": healthPort, "metrics": metricsPort} {
		out[use] = machine.Socket{Address: netip.AddrPortFrom(s.own(), port)}
	}
	if s.Ports.DNS != 0 {
		out["DNS; --set ports.dns=0 closes it"] = machine.Socket{Address: s.dnsAddresses()[0]}
	}
	if s.Workload.Interception != "none" {
		out["outgoing connections"] = machine.Socket{Address: netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}),
			outboundPort)}
		out["incoming connections"] = machine.Socket{Address: netip.AddrPortFrom(netip.IPv4Unspecified(), inboundPort)}
	}
	return out
}

// CheckAddress says whether this machine has the address that Envoy opens its ports on; one that is
// not given is found at joining. The error is a UsageError.
func CheckAddress(ctx context.Context, s *Settings) error {
	if len(s.Workload.Addresses) == 0 {
		return nil
	}
	address := s.Workload.Addresses[0]
	var c net.ListenConfig
	l, err := c.Listen(ctx, "tcp", net.JoinHostPort(address, "0"))
	switch {
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return &UsageError{"workload.addresses",
			address + " is not an address of this machine: give one that \"ip address\" shows here, or leave it out"}
	case err != nil:
		return &UsageError{"workload.addresses", fmt.Sprintf("no port can be opened on %s: %v", address, err)}
	}
	return l.Close()
}
