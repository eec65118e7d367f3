package consulhttp

import (
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"
)

// An error says which option to check.
func TestRemedy(t *testing.T) {
	t.Parallel()
	request := func(err error) error { return &url.Error{Op: "Get", URL: "https://consul/v1", Err: err} }
	remote := request(&net.OpError{Op: "remote error", Err: errors.New("tls: expired certificate")})
	syntax := json.Unmarshal([]byte("<html>"), new(any))
	shape := json.Unmarshal([]byte("[]"), new(map[string]string))
	options := TLS{CAFile: "/ca.pem", CertFile: "/c.pem", ServerName: "s"}
	for name, c := range map[string]struct {
		tls  TLS
		err  error
		want string
	}{
		"unknown CA":               {options, request(x509.UnknownAuthorityError{}), "tls.caFile (/ca.pem)"},
		"unknown CA, not set":      {TLS{}, request(x509.UnknownAuthorityError{}), "tls.caFile (not set"},
		"wrong name":               {options, request(x509.HostnameError{Certificate: &x509.Certificate{}}), "tls.serverName (s)"},
		"expired":                  {options, request(x509.CertificateInvalidError{Reason: x509.Expired}), "renew Consul's certificate"},
		"client certificate":       {options, remote, "tls.certFile (/c.pem)"},
		"no client certificate":    {TLS{}, remote, "tls.certFile (not set)"},
		"an HTML page":             {options, syntax, "not a response of Consul"},
		"other JSON":               {options, shape, "not a response of Consul"},
		"a connection that ended":  {options, request(io.EOF), ""},
		"connection refused":       {options, request(&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}), "check that Consul runs"},
		"HTTPS to a port for HTTP": {options, request(errors.New("http: server gave HTTP response to HTTPS client")), "use http://"},
		"unknown":                  {options, errors.New("x"), ""},
	} {
		if got := c.tls.remedy(c.err); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: got %q, want %q in it", name, got, c.want)
		}
	}
	if !WantsTLS(400, "Client sent an HTTP request to an HTTPS server.") || WantsTLS(400, "no") {
		t.Error("WantsTLS does not recognise the response of an HTTPS port")
	}
}

// The text of an error is the same for every connection and request.
func TestExplain(t *testing.T) {
	t.Parallel()
	tcp := func(s string) net.Addr { return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(s)) }
	reset := os.NewSyscallError("read", syscall.ECONNRESET)
	op := func(local string) error {
		return &net.OpError{Op: "read", Net: "tcp", Source: tcp(local), Addr: tcp("10.0.0.1:8500"), Err: reset}
	}
	const want = "read tcp 10.0.0.1:8500: read: connection reset by peer"
	for name, tc := range map[string]struct {
		err  error
		want string
	}{
		"a request":       {&url.Error{Op: "Get", URL: "http://a/v1/health/service/web", Err: op("127.0.0.1:43210")}, want},
		"another port":    {op("127.0.0.1:43211"), want},
		"IPv6":            {op("[::1]:43211"), want},
		"a wrapped error": {fmt.Errorf("tls.caFile: %w", op("127.0.0.1:5")), "tls.caFile: " + want},
		"no address":      {errors.New("a->b is no connection"), "a->b is no connection"},
		"two lines":       {errors.New("a\nb"), "a b"},
	} {
		if got := (TLS{}).Explain(tc.err); got != tc.want {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
}

func TestOneLine(t *testing.T) {
	t.Parallel()
	got := OneLine("a\n\tb\x1b[1m\xff" + strings.Repeat("ü", 400))
	if strings.ContainsAny(got, "\n\t\x1b") || len(got) > maxText+len("�…") || !strings.HasPrefix(got, "a b [1m�") {
		t.Errorf("got %q", got)
	}
}
