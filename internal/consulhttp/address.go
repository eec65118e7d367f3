package consulhttp

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// DefaultAddress is the local agent.
const DefaultAddress = "http://127.0.0.1:8500"

// SplitAddress parses an address into its scheme and host:port, or socket path for unix.
func SplitAddress(address string) (scheme, rest string, err error) {
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "unix":
		return "", "", fmt.Errorf("%q: want http://HOST:PORT, https://HOST:PORT or unix:///PATH", address)
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return "", "", fmt.Errorf("%q: want only scheme, host and port; put a token into tokenFile", redacted(u))
	case u.Scheme == "unix":
		if u.Host != "" || !strings.HasPrefix(u.Path, "/") {
			return "", "", fmt.Errorf("%q: want an absolute path, such as unix:///run/consul.sock", address)
		}
		return u.Scheme, u.Path, nil
	case u.Hostname() == "" || strings.Trim(u.Path, "/") != "":
		return "", "", fmt.Errorf("%q: want %s://HOST:PORT", address, u.Scheme)
	}
	if port := u.Port(); port != "" || strings.HasSuffix(u.Host, ":") {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return "", "", fmt.Errorf("invalid port %q in %q: want a number from 1 to 65535", port, address)
		}
	}
	host := u.Host
	if u.Port() == "" {
		host += map[string]string{"http": ":8500", "https": ":8501"}[u.Scheme]
	}
	return u.Scheme, host, nil
}

// Exposed reports whether address is a remote host without TLS. An attacker on the network can then
// read the token and forge responses.
func Exposed(address string) bool {
	scheme, rest, err := SplitAddress(address)
	if err != nil || scheme != "http" {
		return false
	}
	host, _, err := net.SplitHostPort(rest)
	ip, _ := netip.ParseAddr(host) // zero if host is a name
	return err == nil && host != "localhost" && !ip.IsLoopback()
}

// redacted returns the URL without user info, query and fragment.
func redacted(u *url.URL) string { return u.Scheme + "://" + u.Host + u.Path }

// CheckAddress validates the options address and tls and reports problems through wrong.
func CheckAddress(address string, t TLS, wrong func(option, format string, args ...any)) {
	scheme, err := "http", error(nil)
	if address != "" {
		scheme, _, err = SplitAddress(address)
	}
	if err != nil {
		wrong("address", "%v", err)
	}
	if (t != TLS{}) && scheme != "https" {
		wrong("tls", "requires an https address, not %q", address)
	}
	if (t.CertFile == "") != (t.KeyFile == "") {
		wrong("tls", "set both certFile and keyFile, or neither")
	}
}
