package consulhttp

import (
	"cmp"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"github.com/ashore-mesh/ashore/internal/excerpt"
)

// ErrNoIndex means that a response has no index or an index of zero, so it is not from Consul.
// Source: Consul, agent/http.go (setIndex).
var ErrNoIndex = errors.New("the response has no X-Consul-Index: check that this is the address of Consul's HTTP API, " +
	"and that no proxy in front of it removes headers")

// maxText is the longest text of Consul in a message, in bytes.
const maxText = 300

// OneLine returns a text of Consul as one line of limited length.
func OneLine(s string) string { return excerpt.Line(s, maxText) }

// Explain describes an error of a request, and what to do about it. The text is the same for each
// request and each connection: it contains neither the URL nor the local port.
func (t TLS) Explain(err error) string {
	text := err
	if u, ok := errors.AsType[*url.Error](err); ok {
		text = u.Err
	}
	words := strings.Split(OneLine(text.Error()), " ")
	for i, w := range words {
		local, remote, _ := strings.Cut(w, "->")
		if _, err := netip.ParseAddrPort(local); err == nil && remote != "" {
			words[i] = remote
		}
	}
	return strings.Join(words, " ") + t.remedy(err)
}

// remedy returns what to do about an error, after "; ". Empty if that is unknown.
func (t TLS) remedy(err error) string {
	var (
		authority   x509.UnknownAuthorityError
		host        x509.HostnameError
		certificate x509.CertificateInvalidError
		syntax      *json.SyntaxError
		shape       *json.UnmarshalTypeError
		dial        *net.OpError
	)
	switch text := err.Error(); {
	case errors.As(err, &authority):
		return fmt.Sprintf("; set tls.caFile (%s) to the CA of its certificate", cmp.Or(t.CAFile, "not set"))
	case errors.As(err, &host):
		return fmt.Sprintf("; its certificate is for another name: check address and tls.serverName (%s)",
			cmp.Or(t.ServerName, "not set"))
	case errors.As(err, &certificate) && certificate.Reason == x509.Expired:
		return "; renew Consul's certificate, or correct the clock"
	case strings.Contains(text, "remote error: tls:"): // the alert has no type of its own
		return fmt.Sprintf("; Consul rejects the client certificate: check tls.certFile (%s)",
			cmp.Or(t.CertFile, "not set"))
	case errors.As(err, &syntax), errors.As(err, &shape):
		return "; this is not a response of Consul: check that this is the address of its HTTP API"
	case strings.Contains(text, "server gave HTTP response to HTTPS client"):
		return "; the port is for plain HTTP: use http:// in address, or the HTTPS port"
	case errors.As(err, &dial) && dial.Op == "dial":
		return "; check that Consul runs, and that this is the address of its HTTP API"
	}
	return ""
}

// WantsTLS reports whether a response is that of an HTTPS port to a plain HTTP request.
func WantsTLS(status int, text string) bool {
	return status == http.StatusBadRequest && strings.Contains(text, "HTTP request to an HTTPS server")
}
