package consulhttp

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ashore-mesh/ashore/internal/readfile"
)

const (
	// maxAnswer limits a response, in bytes. An instance takes about 2 kB.
	maxAnswer = 256 << 20
	// maxPEM and maxToken limit the size of PEM and token files, in bytes.
	maxPEM, maxToken = 1 << 20, 4 << 10
	dialTimeout      = 5 * time.Second
	// A dead connection is closed after 30s: 15s idle, then 3 keep-alive probes 5s apart.
	probeAfter, probeEvery, probes = 15 * time.Second, 5 * time.Second, 3
)

// Config configures a Transport.
type Config struct {
	// Address is Consul's HTTP address; see SplitAddress. Required.
	Address string
	// TokenFile holds the ACL token. It is read for each request. Empty means no token.
	TokenFile string
	// TLS is for an https address.
	TLS TLS
	// Connections limits the number of connections. Required.
	Connections int
	// Enterprise allows the ns and partition parameters. Otherwise they are removed from requests:
	// the client library may add them from the environment.
	Enterprise bool
}

// TLS configures server verification and the client certificate.
type TLS struct {
	// CAFile is a PEM bundle of CAs that verify Consul's certificate. Default: system roots.
	CAFile string `yaml:"caFile"`
	// CertFile and KeyFile are the client certificate and key (PEM), for Consul's verify_incoming.
	// Reloaded for each connection.
	CertFile string `yaml:"certFile"`
	KeyFile  string `yaml:"keyFile"`
	// ServerName is the name in Consul's certificate. Default: the host of the address.
	ServerName string `yaml:"serverName"`
}

// Transport is an http.RoundTripper for Consul. It removes headers and parameters that the client
// library takes from the environment. Safe for concurrent use.
type Transport struct {
	base  *http.Transport
	token func() (string, error)
	// address is the base URL for the client library.
	address    string
	enterprise bool
	// shared reports whether the last response used HTTP/2, so that requests share connections.
	shared atomic.Bool
}

// New returns a Transport. It does no I/O. It returns an error for an invalid address.
func New(c Config) (*Transport, error) {
	scheme, rest, err := SplitAddress(c.Address)
	if err != nil {
		return nil, fmt.Errorf("address: %w", err)
	}
	d := &net.Dialer{Timeout: dialTimeout, KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: probeAfter,
		Interval: probeEvery, Count: probes}}
	base := &http.Transport{
		ForceAttemptHTTP2: true, MaxConnsPerHost: c.Connections, MaxIdleConnsPerHost: c.Connections, IdleConnTimeout: time.Minute,
		HTTP2:       &http.HTTP2Config{SendPingTimeout: probeAfter, PingTimeout: probes * probeEvery},
		DialContext: d.DialContext,
	}
	address := scheme + "://" + rest
	switch scheme {
	case "unix":
		address = "http://consul"
		base.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return d.DialContext(ctx, "unix", rest)
		}
	case "https":
		// Dial here so that each connection uses the current TLS files.
		base.DialTLSContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
			cfg, err := c.TLS.config(addr)
			if err != nil {
				return nil, err
			}
			return (&tls.Dialer{NetDialer: d, Config: cfg}).DialContext(ctx, network, addr)
		}
	}
	return &Transport{base: base, token: tokenReader(c.TokenFile), address: address, enterprise: c.Enterprise}, nil
}

// Address returns the base URL for the client library. For unix sockets it is a placeholder.
func (t *Transport) Address() string { return t.address }

// Client returns an HTTP client that uses t and does not follow redirects.
func (t *Transport) Client() *http.Client {
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &http.Client{Transport: t, CheckRedirect: stay}
}

// Shared reports whether the last response used HTTP/2, so that requests share connections.
func (t *Transport) Shared() bool { return t.shared.Load() }

// CloseIdleConnections closes idle connections.
func (t *Transport) CloseIdleConnections() { t.base.CloseIdleConnections() }

// config returns the TLS configuration for a connection to addr.
func (t TLS) config(addr string) (*tls.Config, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	if t.ServerName != "" {
		host = t.ServerName
	}
	out := &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}
	if t.CAFile != "" {
		pem, _, err := readfile.Read(t.CAFile, maxPEM)
		if err != nil {
			return nil, fmt.Errorf("tls.caFile: %w", err)
		}
		out.RootCAs = x509.NewCertPool()
		if !out.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("tls.caFile: no PEM certificate in %s", t.CAFile)
		}
	}
	if t.CertFile != "" {
		cert, err := t.certificate()
		if err != nil {
			return nil, err
		}
		out.Certificates = []tls.Certificate{cert}
	}
	return out, nil
}

func (t TLS) certificate() (tls.Certificate, error) {
	certPEM, _, err := readfile.Read(t.CertFile, maxPEM)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("tls.certFile: %w", err)
	}
	keyPEM, _, err := readfile.Read(t.KeyFile, maxPEM)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("tls.keyFile: %w", err)
	}
	cert, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("tls.certFile %s and tls.keyFile %s: %w", t.CertFile, t.KeyFile, err)
	}
	return cert, nil
}

// tokenReader returns a function that reads the token. An empty file is an error: an anonymous
// request could return an empty catalog.
func tokenReader(file string) func() (string, error) {
	return func() (string, error) {
		if file == "" {
			return "", nil
		}
		raw, _, err := readfile.Read(file, maxToken)
		if err != nil {
			return "", fmt.Errorf("tokenFile: %w", err)
		}
		token := strings.TrimSpace(string(raw))
		if token == "" || strings.ContainsFunc(token, func(c rune) bool { return c <= ' ' || c > '~' }) {
			return "", fmt.Errorf("tokenFile: %s has no token: want one line with the SecretID", file)
		}
		return token, nil
	}
}

// RoundTrip adds the current token and limits the response size.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	token, err := t.token()
	if err != nil {
		return nil, err
	}
	req = req.Clone(req.Context())
	req.Header.Del("Authorization")
	req.Header.Del("X-Consul-Token")
	if token != "" {
		req.Header.Set("X-Consul-Token", token)
	}
	if !t.enterprise {
		q := req.URL.Query()
		q.Del("ns")
		q.Del("partition")
		req.URL.RawQuery = q.Encode()
	}
	resp, err := t.base.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	t.shared.Store(resp.ProtoMajor >= 2)
	resp.Body = &bounded{resp.Body, maxAnswer}
	return resp, nil
}

// bounded is a body that may not have more than left bytes.
type bounded struct {
	io.ReadCloser
	left int64
}

var errTooLong = errors.New("the response is longer than 256 MiB")

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errTooLong
	}
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}
