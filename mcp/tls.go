package mcp

import (
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/ashore-mesh/ashore/internal/tlsfile"
)

// fileError is a problem with one of our TLS files.
type fileError struct{ error }

// Unwrap returns the cause.
func (e fileError) Unwrap() error { return e.error }

// clientCredentials reads the credentials for one connection.
func (c *Config) clientCredentials() (credentials.TransportCredentials, error) {
	if c.Plaintext {
		return insecure.NewCredentials(), nil
	}
	config, err := tlsfile.Client{CAFile: c.CAFile, CertFile: c.CertFile, KeyFile: c.KeyFile}.Load()
	if err != nil {
		return nil, fileError{err}
	}
	config.ServerName = c.ServerName
	return credentials.NewTLS(config), nil
}
