package consulhttp

import (
	"cmp"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"syscall"
)

// Remedy returns a hint for a request error, starting with "; ", or "" if there is none. It names
// options as in the TLS struct.
func (t TLS) Remedy(err error) string {
	var authority x509.UnknownAuthorityError
	var host x509.HostnameError
	var certificate x509.CertificateInvalidError
	var syntax *json.SyntaxError
	var shape *json.UnmarshalTypeError
	var urlErr *url.Error
	switch text := err.Error(); {
	case errors.As(err, &authority):
		return fmt.Sprintf("; tls.caFile (%s) does not have the authority of its certificate",
			cmp.Or(t.CAFile, "not set: those of the machine"))
	case errors.As(err, &host):
		return fmt.Sprintf("; its certificate has another name: check address and tls.serverName (%s)",
			cmp.Or(t.ServerName, "not set: the host of the address"))
	case errors.As(err, &certificate) && certificate.Reason == x509.Expired:
		return "; renew Consul's certificate, or correct the clocks"
	case strings.Contains(text, "remote error: tls:"): // alerts sent by the peer have no exported error type
		return fmt.Sprintf("; Consul rejected the client certificate: check tls.certFile (%s)",
			cmp.Or(t.CertFile, "not set"))
	case t.CertFile != "" && (errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)):
		return fmt.Sprintf("; if this persists, Consul may reject the client certificate tls.certFile (%s)", t.CertFile)
	case errors.As(err, &syntax), errors.As(err, &shape), !errors.As(err, &urlErr) &&
		(errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)):
		return "; this is not a response of Consul: check that address is its HTTP API"
	case strings.Contains(text, "server gave HTTP response to HTTPS client"):
		return "; the server uses plain HTTP: use http:// in address, or the HTTPS port"
	case isDial(err):
		return "; check that Consul is running, and that address is its HTTP API"
	}
	return ""
}

func isDial(err error) bool {
	dial, ok := errors.AsType[*net.OpError](err)
	return ok && dial.Op == "dial"
}

// WantsTLS reports whether a response says that plain HTTP was sent to an HTTPS port.
func WantsTLS(status int, text string) bool {
	return status == 400 && strings.Contains(text, "HTTP request to an HTTPS server")
}
