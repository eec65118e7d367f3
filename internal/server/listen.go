package server

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"syscall"

	"github.com/ashore-mesh/ashore/internal/settings"
)

// listen opens the TCP address of a setting. Errors name the port, the setting and what to do.
func listen(address, setting, flag string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	where := fmt.Sprintf("setting %s, or --%s in development", setting, flag)
	switch {
	case err == nil:
		return l, nil
	case errors.Is(err, syscall.EADDRINUSE):
		host, port, _ := net.SplitHostPort(address) // it was an address for net.Listen too
		return nil, fmt.Errorf("port %s of %s is in use by another process: stop that one (\"ss -ltnp\" shows it), "+
			"or choose another port (%s)", port, cmp.Or(host, "every address"), where)
	case errors.Is(err, syscall.EACCES):
		return nil, fmt.Errorf("this user may not listen on %s: choose a port above 1023 (%s)", address, where)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return nil, fmt.Errorf("%s is not an address of this machine: choose another (%s)", address, where)
	default:
		return nil, fmt.Errorf("listen on %s (%s): %w", address, where, err)
	}
}

// loopback reports whether only this machine reaches an address.
func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return err == nil && (host == settings.Localhost || ip != nil && ip.IsLoopback())
}
