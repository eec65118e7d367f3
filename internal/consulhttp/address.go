package consulhttp

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"strings"
)

// DefaultAddress is the address of the agent on this machine.
const DefaultAddress = "http://127.0.0.1:8500"

// SplitAddress returns the scheme of an address, and its host and port or the path of its socket.
func SplitAddress(address string) (scheme, rest string, err error) {
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "unix":
		return "", "", fmt.Errorf("%q: want http://HOST:PORT, https://HOST:PORT or unix:///PATH", address)
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		without := u.Scheme + "://" + u.Host + u.Path // the rest may be secret
		return "", "", fmt.Errorf("%q: want only a host and a port; set a token with tokenFile", without)
	case u.Scheme == "unix":
		if u.Host != "" || !strings.HasPrefix(u.Path, "/") {
			return "", "", fmt.Errorf("%q: want unix:// and an absolute path, such as unix:///run/consul.sock", address)
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

// CheckAddress reports invalid values of the options address and tls. An empty address is the
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
		wrong("tls", "certFile and keyFile belong together: set both or neither")
	}
}

// Checked returns all problems that the check of options reports as one error.
func Checked(check func(wrong func(option, format string, args ...any))) error {
	var errs []error
	check(func(option, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s: %s", option, fmt.Sprintf(format, args...)))
	})
	return errors.Join(errs...)
}

// Exposure reports an address at which others can change responses or read the token, and a token
// file that others can read or change.
func Exposure(address, tokenFile string, warn func(option, format string, args ...any)) {
	if remotePlaintext(address) {
		warn("address", "%s is another machine, and http does not protect the connection: others on the network can "+
			"read and change requests and responses; use https, or the agent of this machine", address)
	}
	// The transport reports a missing file.
	if info, err := os.Stat(tokenFile); err == nil && info.Mode()&0o006 != 0 {
		warn("tokenFile", "%s can be read or changed by every user of this machine (mode %04o): chmod 600 it, and create "+
			"a new token", tokenFile, info.Mode().Perm())
	}
}

// remotePlaintext reports whether an address is on another machine and does not use TLS.
func remotePlaintext(address string) bool {
	scheme, rest, err := SplitAddress(address)
	if err != nil || scheme != "http" {
		return false
	}
	host, _, err := net.SplitHostPort(rest)
	ip, _ := netip.ParseAddr(host) // a name is not an address
	return err == nil && host != "localhost" && !ip.IsLoopback()
}
