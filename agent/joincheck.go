package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
)

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
