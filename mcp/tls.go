package mcp

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/ashore-mesh/ashore/internal/readfile"
)

// maxPEM bounds the files of TLS.
const maxPEM = 1 << 20

// fileError is what is wrong with a file of TLS: nothing was asked of anybody, and the other side has no part in it.
type fileError struct{ error }

// Unwrap returns the cause.
func (e fileError) Unwrap() error { return e.error }

// authorities reads caFile; nil, without an error, are those of the machine.
func (c *Config) authorities() (*x509.CertPool, error) {
	if c.CAFile == "" {
		return nil, nil
	}
	pem, _, err := readfile.Read(c.CAFile, maxPEM)
	if err != nil {
		return nil, fmt.Errorf("caFile: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("caFile: %s holds no certificate in PEM", c.CAFile)
	}
	return pool, nil
}

// certificates reads certFile and keyFile.
func (c *Config) certificates() ([]tls.Certificate, error) {
	if c.CertFile == "" {
		return nil, nil
	}
	cert, _, err := readfile.Read(c.CertFile, maxPEM)
	if err != nil {
		return nil, fmt.Errorf("certFile: %w", err)
	}
	key, _, err := readfile.Read(c.KeyFile, maxPEM)
	if err != nil {
		return nil, fmt.Errorf("keyFile: %w", err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("certFile: %s and %s: %w", c.CertFile, c.KeyFile, err)
	}
	return []tls.Certificate{pair}, nil
}

// clientCredentials are those of one connection to a server.
func (c *Config) clientCredentials() (credentials.TransportCredentials, error) {
	if c.Plaintext {
		return insecure.NewCredentials(), nil
	}
	roots, err := c.authorities()
	if err != nil {
		return nil, fileError{err}
	}
	certs, err := c.certificates()
	if err != nil {
		return nil, fileError{err}
	}
	return credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, Certificates: certs, ServerName: c.ServerName}), nil
}

// serverCredentials are those of who is called: files are read for each connection.
func (c *Config) serverCredentials() (credentials.TransportCredentials, error) {
	if c.Plaintext {
		return insecure.NewCredentials(), nil
	}
	if _, err := c.serverTLS(); err != nil {
		return nil, err
	}
	return credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return c.serverTLS() }}), nil
}

func (c *Config) serverTLS() (*tls.Config, error) {
	roots, err := c.authorities()
	if err != nil {
		return nil, err
	}
	certs, err := c.certificates()
	if err != nil {
		return nil, err
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: certs, ClientCAs: roots, ClientAuth: tls.RequireAndVerifyClientCert,
		NextProtos: []string{"h2"}, SessionTicketsDisabled: true, VerifyConnection: c.verifyPeer}, nil
}

// verifyPeer refuses callers that are not among the peers.
func (c *Config) verifyPeer(s tls.ConnectionState) error {
	if len(s.PeerCertificates) == 0 {
		return errors.New("no client certificate was presented")
	}
	all := names(s)
	if !slices.ContainsFunc(all, func(n string) bool { return slices.Contains(c.Peers, n) }) {
		return fmt.Errorf("the caller is %q, which peers does not name", clip(strings.Join(all, ", ")))
	}
	return nil
}

// names are those that the certificate of the other side has.
func names(s tls.ConnectionState) []string {
	if len(s.PeerCertificates) == 0 {
		return nil
	}
	out := slices.Clone(s.PeerCertificates[0].DNSNames)
	for _, u := range s.PeerCertificates[0].URIs {
		out = append(out, u.String())
	}
	return out
}
