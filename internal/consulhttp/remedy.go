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

// Remedy is what to do about an error of asking Consul, as the end of a sentence that begins with
// "; "; empty where the error says it, or nobody knows. The options are called as in TLS.
func (t TLS) Remedy(err error) string {
	var authority x509.UnknownAuthorityError
	var host x509.HostnameError
	var certificate x509.CertificateInvalidError
	var syntax *json.SyntaxError
	var shape *json.UnmarshalTypeError
	var asked *url.Error
	switch text := err.Error(); {
	case errors.As(err, &authority):
		return fmt.Sprintf("; its certificate is of an authority that tls.caFile (%s) does not have",
			cmp.Or(t.CAFile, "not set: the machine's are believed"))
	case errors.As(err, &host):
		return fmt.Sprintf("; its certificate is for another name: see address and tls.serverName (%s)",
			cmp.Or(t.ServerName, "not set: the host of the address"))
	case errors.As(err, &certificate) && certificate.Reason == x509.Expired:
		return "; renew Consul's certificate, and look whether the clocks are right"
	case strings.Contains(text, "remote error: tls:"): // the alert has no type of its own
		return fmt.Sprintf("; Consul does not take what this side shows: see tls.certFile (%s)",
			cmp.Or(t.CertFile, "not set"))
	case t.CertFile != "" && (errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)):
		return fmt.Sprintf("; where that stays so, it may be that Consul does not take tls.certFile (%s)", t.CertFile)
	case errors.As(err, &syntax), errors.As(err, &shape), !errors.As(err, &asked) &&
		(errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)):
		return "; that is no answer of Consul's: is it the address of its HTTP interface?"
	case strings.Contains(text, "server gave HTTP response to HTTPS client"):
		return "; it speaks plain HTTP there: write http:// in address, or its port of HTTPS"
	case isDial(err):
		return "; does it run, and is that the address of its HTTP interface?"
	}
	return ""
}

func isDial(err error) bool {
	dial, ok := errors.AsType[*net.OpError](err)
	return ok && dial.Op == "dial"
}

// WantsTLS says that an answer is one to a request in plain HTTP at a port of HTTPS, by its status
// and text.
func WantsTLS(status int, text string) bool {
	return status == 400 && strings.Contains(text, "HTTP request to an HTTPS server")
}
