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
	// maxAnswer bounds one answer of Consul, in bytes. An instance takes some 2 kB.
	maxAnswer = 256 << 20
	// maxPEM bounds a file of certificates or a key, maxToken one with a token.
	maxPEM, maxToken = 1 << 20, 4 << 10
	dialTimeout      = 5 * time.Second
	// A connection to a Consul that has vanished is given up after some 30 seconds.
	probeAfter, probeEvery, probes = 15 * time.Second, 5 * time.Second, 3
)

// Config says how to reach a Consul.
type Config struct {
	// Address is that of its HTTP interface; see SplitAddress. Required.
	Address string
	// TokenFile has the ACL token, and is read anew for each request. Empty: there is none.
	TokenFile string
	// TLS is for an https address.
	TLS TLS
	// Connections is how many there are at most; required.
	Connections int
	// Enterprise says that namespaces or partitions are named. Otherwise none goes out, whatever
	// the environment says.
	Enterprise bool
}

// TLS is how an https address is verified, and how this side shows who it is.
type TLS struct {
	// CAFile has the certificates of the authorities that Consul's certificate is verified by, in
	// PEM. Default: the machine's.
	CAFile string `yaml:"caFile"`
	// CertFile and KeyFile are what this side shows when Consul asks (verify_incoming), in PEM.
	// Read anew for each connection.
	CertFile string `yaml:"certFile"`
	KeyFile  string `yaml:"keyFile"`
	// ServerName is the name in Consul's certificate. Default: the host of the address.
	ServerName string `yaml:"serverName"`
}

// Transport is the way to Consul. It knows what no request may say: what the environment of the
// process suggests to the library. Safe for concurrent use.
type Transport struct {
	base  *http.Transport
	token func() (string, error)
	// address is what the library is to be told.
	address    string
	enterprise bool
	// shared says that the last answer came over HTTP/2, by which many requests share a connection.
	shared atomic.Bool
}

// New makes a transport; it asks nobody. Errors: the address.
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
		base.DialContext = func(ctx context.Context, _, _ string) (net.Conn,
			error) {
			return d.DialContext(ctx, "unix", rest)
		}
	case "https":
		// By dialling here, each connection is made by what the files say at that time.
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

// Address is what Consul's library is to be told; the transport knows where that is.
func (t *Transport) Address() string { return t.address }

// Client asks by the transport, and follows nobody elsewhere.
func (t *Transport) Client() *http.Client {
	return &http.Client{Transport: t, CheckRedirect: func(*http.Request,
		[]*http.Request) error {
		return http.ErrUseLastResponse
	}}
}

// Shared says that the last answer came over HTTP/2, by which many requests share a connection.
func (t *Transport) Shared() bool { return t.shared.Load() }

// CloseIdleConnections closes those that nobody uses.
func (t *Transport) CloseIdleConnections() { t.base.CloseIdleConnections() }

// config is that of one connection to addr.
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
			return nil, fmt.Errorf("tls.caFile: %s has no certificate in PEM", t.CAFile)
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

// tokenReader reads the token as it is now; without a file there is none. A file without a token is
// an error: as nobody, one would be told that there are no services.
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

// RoundTrip sends a request with the token of now, and bounds its answer.
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

var errTooLong = errors.New("the answer is longer than any of Consul's")

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errTooLong
	}
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}
