package consulhttp

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ashore-mesh/ashore/internal/readfile"
	"github.com/ashore-mesh/ashore/internal/tlsfile"
)

const (
	// maxResponse is the largest response, in bytes. An instance takes about 2 kB.
	maxResponse = 256 << 20
	// maxToken is the largest token file, in bytes.
	maxToken    = 4 << 10
	dialTimeout = 5 * time.Second
	// A connection whose other end has vanished is closed after about 30 seconds.
	probeAfter, probeEvery, probes = 15 * time.Second, 5 * time.Second, 3
)

// Config configures a Transport.
type Config struct {
	// Address is the address of Consul's HTTP API; see SplitAddress. Required.
	Address string
	// TokenFile contains the ACL token. It is read for each request. Empty means no token.
	TokenFile string
	// TLS is for an https address.
	TLS TLS
	// Connections is the largest number of connections. Required.
	Connections int
	// Enterprise means that requests may name namespaces and partitions. Otherwise the transport
	// removes them, because the library takes them from the environment.
	Enterprise bool
}

// TLS configures the verification of an https address, and the client certificate. Its files are
// read for each connection.
type TLS struct {
	// CAFile contains the CA certificates for Consul's certificate, in PEM. Default: those of the
	// system.
	CAFile string `yaml:"caFile"`
	// CertFile and KeyFile are the client certificate and its key, in PEM. Consul requires them if
	// verify_incoming is set.
	CertFile string `yaml:"certFile"`
	KeyFile  string `yaml:"keyFile"`
	// ServerName is the name in Consul's certificate. Default: the host of the address.
	ServerName string `yaml:"serverName"`
}

// Transport sends requests to Consul. Safe for concurrent use.
type Transport struct {
	base       *http.Transport // immutable
	tokenFile  string          // immutable
	address    string          // immutable
	enterprise bool            // immutable

	shared atomic.Bool // the last response used HTTP/2
}

// New returns a transport. It does not connect. It returns an error if the address is invalid.
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
		// Read the files for each connection.
		base.DialTLSContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
			cfg, err := c.TLS.config(addr)
			if err != nil {
				return nil, err
			}
			return (&tls.Dialer{NetDialer: d, Config: cfg}).DialContext(ctx, network, addr)
		}
	}
	return &Transport{base: base, tokenFile: c.TokenFile, address: address, enterprise: c.Enterprise}, nil
}

// Address returns the address for the configuration of Consul's client library.
func (t *Transport) Address() string { return t.address }

// Client returns a client that uses the transport. It does not follow redirects.
func (t *Transport) Client() *http.Client {
	noRedirect := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &http.Client{Transport: t, CheckRedirect: noRedirect}
}

// Shared reports whether the last response used HTTP/2, with which many requests share a
// connection.
func (t *Transport) Shared() bool { return t.shared.Load() }

// CloseIdleConnections closes connections that are not in use.
func (t *Transport) CloseIdleConnections() { t.base.CloseIdleConnections() }

// config returns the TLS configuration for a connection to addr.
func (t TLS) config(addr string) (*tls.Config, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	out, err := tlsfile.Client{CAFile: t.CAFile, CertFile: t.CertFile, KeyFile: t.KeyFile}.Load()
	if err != nil {
		return nil, fmt.Errorf("tls.%w", err)
	}
	out.ServerName, out.NextProtos = cmp.Or(t.ServerName, host), []string{"h2", "http/1.1"}
	return out, nil
}

// readToken returns the token in a file; empty without a file. A file without a token is an error,
// because Consul may respond to an anonymous request as if there were no services.
func readToken(file string) (string, error) {
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

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	token, err := readToken(t.tokenFile)
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
	resp.Body = http.MaxBytesReader(nil, resp.Body, maxResponse)
	return resp, nil
}
