package mcp

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/ashore-mesh/ashore/internal/readfile"
)

// maxPEM limits the size of TLS files.
const maxPEM = 1 << 20

// fileError is a problem with one of our TLS files.
type fileError struct{ error }

// Unwrap returns the cause.
func (e fileError) Unwrap() error { return e.error }

// authorities reads caFile. Nil without an error means those of the machine.
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

// clientCredentials reads the credentials for one connection.
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
	return credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS12, RootCAs: roots, Certificates: certs, ServerName: c.ServerName,
	}), nil
}
