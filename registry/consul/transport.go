package consul

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

// transport is the way to Consul. It knows what no request may say: what the environment of the process suggests to the
// library. Safe for concurrent use.
type transport struct {
	base  *http.Transport
	token func() (string, error)
	// enterprise says that namespaces or partitions are named.
	enterprise bool
	// shared says that the last answer came over HTTP/2, by which many requests share a connection.
	shared atomic.Bool
}

func newTransport(o *Options) *transport {
	scheme, rest, _ := splitAddress(o.Address) // checked before
	d := &net.Dialer{Timeout: dialTimeout, KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: probeAfter, Interval: probeEvery, Count: probes}}
	base := &http.Transport{
		ForceAttemptHTTP2: true, MaxConnsPerHost: o.Connections, MaxIdleConnsPerHost: o.Connections, IdleConnTimeout: time.Minute,
		HTTP2:       &http.HTTP2Config{SendPingTimeout: probeAfter, PingTimeout: probes * probeEvery},
		DialContext: d.DialContext,
	}
	switch scheme {
	case "unix":
		base.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) { return d.DialContext(ctx, "unix", rest) }
	case "https":
		// By dialling here, each connection is made by what the files say at that time.
		base.DialTLSContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
			cfg, err := o.TLS.config(addr)
			if err != nil {
				return nil, err
			}
			return (&tls.Dialer{NetDialer: d, Config: cfg}).DialContext(ctx, network, addr)
		}
	}
	return &transport{base: base, token: tokenReader(o.TokenFile), enterprise: len(o.Namespaces) > 0 || o.Partition != ""}
}

// config is that of one connection to addr.
func (t TLSOptions) config(addr string) (*tls.Config, error) {
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

func (t TLSOptions) certificate() (tls.Certificate, error) {
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

// tokenReader reads the token as it is now; without a file there is none. A file without a token is an error: as nobody,
// one would be told that there are no services.
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
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
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
