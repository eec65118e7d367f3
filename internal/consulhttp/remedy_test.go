package consulhttp

import (
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"syscall"
	"testing"
)

// What is wrong with a connection says which option to look at.
func TestRemedy(t *testing.T) {
	t.Parallel()
	asked := func(err error) error { return &url.Error{Op: "Get", URL: "https://consul/v1", Err: err} }
	remote := asked(&net.OpError{Op: "remote error", Err: errors.New("tls: expired certificate")})
	syntax := json.Unmarshal([]byte("<html>"), new(any))
	shape := json.Unmarshal([]byte("[]"), new(map[string]string))
	mine := TLS{CAFile: "/ca.pem", CertFile: "/c.pem", ServerName: "s"}
	for name, c := range map[string]struct {
		tls  TLS
		err  error
		want string
	}{
		"an authority":              {mine, asked(x509.UnknownAuthorityError{}), "tls.caFile (/ca.pem)"},
		"an authority, none set":    {TLS{}, asked(x509.UnknownAuthorityError{}), "tls.caFile (not set"},
		"a name":                    {mine, asked(x509.HostnameError{Certificate: &x509.Certificate{}}), "tls.serverName (s)"},
		"expired":                   {mine, asked(x509.CertificateInvalidError{Reason: x509.Expired}), "renew Consul's certificate"},
		"ours":                      {mine, remote, "tls.certFile (/c.pem)"},
		"ours, none set":            {TLS{}, remote, "tls.certFile (not set)"},
		"cut":                       {mine, asked(&net.OpError{Op: "write", Err: syscall.EPIPE}), "may reject the client certificate tls.certFile"},
		"cut, and nothing is shown": {TLS{}, asked(&net.OpError{Op: "write", Err: syscall.EPIPE}), ""},
		"a page":                    {mine, syntax, "not a response of Consul"},
		"another document":          {mine, shape, "not a response of Consul"},
		"nothing":                   {mine, fmt.Errorf("decode: %w", io.EOF), "not a response of Consul"},
		"a connection that ended":   {mine, asked(io.EOF), ""},
		"nobody there":              {mine, asked(&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}), "check that Consul is running"},
		"plain HTTP":                {mine, asked(errors.New("http: server gave HTTP response to HTTPS client")), "use http://"},
		"something else":            {mine, errors.New("x"), ""},
	} {
		if got := c.tls.Remedy(c.err); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q in it", name, got, c.want)
		}
	}
	if !WantsTLS(400, "Client sent an HTTP request to an HTTPS server.") || WantsTLS(400, "no") {
		t.Error("what an HTTPS server says to plain HTTP is not known")
	}
}
