package tlsfile

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"

	"github.com/ashore-mesh/ashore/internal/readfile"
)

// maxSize is the largest file, in bytes.
const maxSize = 1 << 20

// Client are the files of a client, in PEM. Each may be empty.
type Client struct {
	// CAFile has the authorities that verify the server. Empty: those of the system.
	CAFile string
	// CertFile and KeyFile are the certificate of the client and its key.
	CertFile, KeyFile string
}

// Load reads the files. Errors begin with the name of an option: caFile, certFile or keyFile.
func (c Client) Load() (*tls.Config, error) {
	out := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.CAFile != "" {
		pem, _, err := readfile.Read(c.CAFile, maxSize)
		if err != nil {
			return nil, fmt.Errorf("caFile: %w", err)
		}
		out.RootCAs = x509.NewCertPool()
		if !out.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("caFile: %s has no certificate in PEM", c.CAFile)
		}
	}
	if c.CertFile == "" {
		return out, nil
	}
	cert, _, err := readfile.Read(c.CertFile, maxSize)
	if err != nil {
		return nil, fmt.Errorf("certFile: %w", err)
	}
	key, _, err := readfile.Read(c.KeyFile, maxSize)
	if err != nil {
		return nil, fmt.Errorf("keyFile: %w", err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("certFile: %s and %s: %w", c.CertFile, c.KeyFile, err)
	}
	out.Certificates = []tls.Certificate{pair}
	return out, nil
}
