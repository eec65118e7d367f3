package server

import (
	"errors"
	"fmt"
	"net"
	"syscall"

	"github.com/ashore-mesh/ashore/internal/settings"
)

// listen opens the TCP address of a setting.
func listen(address, setting string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		err = fmt.Errorf("%w: stop the process that uses it (\"ss -ltnp\" shows it), or choose another port", err)
	}
	if err != nil {
		return nil, fmt.Errorf("%w (setting %s)", err, setting)
	}
	return l, nil
}

// loopback reports whether only this machine reaches an address.
func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return err == nil && (host == settings.Localhost || ip != nil && ip.IsLoopback())
}
