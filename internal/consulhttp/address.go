package consulhttp

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// DefaultAddress is that of the agent of this machine.
const DefaultAddress = "http://127.0.0.1:8500"

// SplitAddress reads an address: its scheme, and the host and port or the path of a socket.
func SplitAddress(address string) (scheme, rest string, err error) {
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "unix":
		return "", "", fmt.Errorf("%q: want http://HOST:PORT, https://HOST:PORT or unix:///PATH", address)
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return "", "", fmt.Errorf("%q: want a host and a port and no more; a token belongs into tokenFile", redacted(u))
	case u.Scheme == "unix":
		if u.Host != "" || !strings.HasPrefix(u.Path, "/") {
			return "", "", fmt.Errorf("%q: want unix:// and a whole path, as unix:///run/consul.sock", address)
		}
		return u.Scheme, u.Path, nil
	case u.Hostname() == "" || strings.Trim(u.Path, "/") != "":
		return "", "", fmt.Errorf("%q: want %s://HOST:PORT", address, u.Scheme)
	}
	if port := u.Port(); port != "" || strings.HasSuffix(u.Host, ":") {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return "", "", fmt.Errorf("%q is not a port of %q: want a number from 1 to 65535", port, address)
		}
	}
	host := u.Host
	if u.Port() == "" {
		host += map[string]string{"http": ":8500", "https": ":8501"}[u.Scheme]
	}
	return u.Scheme, host, nil
}

// Exposed says that an address leads to another machine without TLS: who is on the way reads the
// token, and answers what he likes.
func Exposed(address string) bool {
	scheme, rest, err := SplitAddress(address)
	if err != nil || scheme != "http" {
		return false
	}
	host, _, err := net.SplitHostPort(rest)
	ip, _ := netip.ParseAddr(host) // a name is no address
	return err == nil && host != "localhost" && !ip.IsLoopback()
}

// redacted is an address without what may be secret in it.
func redacted(u *url.URL) string { return u.Scheme + "://" + u.Host + u.Path }

// CheckAddress tells what is wrong with the options address and tls; an empty address is the
// default.
func CheckAddress(address string, t TLS, wrong func(option, format string, args ...any)) {
	scheme, err := "http", error(nil)
	if address != "" {
		scheme, _, err = SplitAddress(address)
	}
	if err != nil {
		wrong("address", "%v", err)
	}
	if (t != TLS{}) && scheme != "https" {
		wrong("tls", "is only for an https address, and address is %q", address)
	}
	if (t.CertFile == "") != (t.KeyFile == "") {
		wrong("tls", "certFile and keyFile belong together: name both or none")
	}
}
