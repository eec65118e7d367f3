package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"slices"
	"syscall"
)

// CheckAddress says whether this machine has the address that Envoy opens its ports on; one that is not given is found
// at joining. The error is a UsageError.
func CheckAddress(ctx context.Context, s *Settings) error {
	if len(s.Workload.Addresses) == 0 {
		return nil
	}
	address := s.Workload.Addresses[0]
	var c net.ListenConfig
	l, err := c.Listen(ctx, "tcp", net.JoinHostPort(address, "0"))
	switch {
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return &UsageError{"workload.addresses", address + " is not an address of this machine: give one that \"ip address\" shows here, or leave it out"}
	case err != nil:
		return &UsageError{"workload.addresses", fmt.Sprintf("no port can be opened on %s: %v", address, err)}
	}
	return l.Close()
}

// move keeps the addresses of a line that is pasted again, and returns those that were kept before; nil when they are the
// same, or not given. The caller holds the lock of the state folder.
func move(s *Settings) (before []string, err error) {
	if len(s.Workload.Addresses) == 0 {
		return nil, nil
	}
	own, err := KeptSettings(s.State)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		own = *s
	case err != nil:
		return nil, err
	default:
		if slices.Equal(own.Workload.Addresses, s.Workload.Addresses) {
			return nil, nil
		}
		before = own.Workload.Addresses
	}
	own.State, own.Workload.Addresses = s.State, s.Workload.Addresses
	return before, saveOwn(&own)
}
