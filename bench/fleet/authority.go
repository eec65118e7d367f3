package fleet

import (
	"context"
	"crypto/tls"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/ashore-mesh/ashore/ca"
	"github.com/ashore-mesh/ashore/internal/record"
	"github.com/ashore-mesh/ashore/internal/spiffe"
)

// trustDomain is the mesh's.
const trustDomain = "cluster.local"

// authorityLife is how long a measured mesh's authority lives: longer than any measurement.
const authorityLife = 30 * 24 * time.Hour

// Authority signs for a mesh that is measured: the certificates of simulated proxies, and the
// floor's.
type Authority struct{ manager *ca.Manager }

// WriteAuthority makes an authority, a root and an intermediate below it, as the four files of
// Istio in dir: what a server is to sign and to be known by.
func WriteAuthority(dir string) error {
	now := time.Now()
	rootKey := ca.NewKey()
	root, err := ca.NewRoot("root of the bench", authorityLife, rootKey, now)
	if err != nil {
		return err
	}
	key := ca.NewKey()
	cert, err := root.NewIntermediate("authority of the bench", authorityLife, key.Public(), now)
	if err != nil {
		return err
	}
	text, err := ca.EncodeKey(key)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for name, body := range map[string][]byte{
		"ca-cert.pem": ca.EncodeCertificates(cert), "ca-key.pem": text,
		"root-cert.pem": ca.EncodeCertificates(root.Cert), "cert-chain.pem": ca.EncodeCertificates(root.Cert),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), body, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// OpenAuthority reads what WriteAuthority wrote.
func OpenAuthority(ctx context.Context, dir string) (*Authority, error) {
	m, err := ca.NewManager(ctx, ca.ManagerConfig{Dir: dir, Plugged: dir, TrustDomain: trustDomain,
		Records: record.NewMemory()})
	if err != nil {
		return nil, fmt.Errorf("authority in %s: %w", dir, err)
	}
	return &Authority{m}, nil
}

// Client is how proxy i of a mesh speaks TLS: with a certificate of its own, to a control plane of
// this authority. From a nil authority it is nil: without TLS.
func (a *Authority) Client(s Shape, i int) (*tls.Config, error) {
	if a == nil {
		return nil, nil
	}
	id, err := spiffe.New(trustDomain, s.Namespace(i%s.Services), s.Account(i%s.Services))
	if err != nil {
		return nil, err
	}
	key := ca.NewKey()
	signer := a.manager.Signer()
	leaf, err := ca.Issue(signer, ca.Grant{ID: id, Workload: fmt.Sprintf("%s/proxy-%d", id.Namespace, i),
		Key: key.Public()}, time.Now())
	if err != nil {
		return nil, err
	}
	cert := tls.Certificate{PrivateKey: key, Leaf: leaf, Certificate: [][]byte{leaf.Raw}}
	for _, c := range signer.Intermediates {
		cert.Certificate = append(cert.Certificate, c.Raw)
	}
	return &tls.Config{ServerName: "localhost", RootCAs: a.manager.Bundle().Pool(),
		Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}, nil
}

// Server is how the floor speaks TLS: with the same certificate, versions and ciphers as ashored,
// and it demands a certificate and verifies it, as ashored does when a stream is opened.
func (a *Authority) Server() *tls.Config {
	c := ca.ServerTLS(a.manager.ServerCertificate)
	c.ClientAuth, c.ClientCAs = tls.RequireAndVerifyClientCert, a.manager.Bundle().Pool()
	c.VerifyConnection = func(state tls.ConnectionState) error {
		_, err := spiffe.Of(state.PeerCertificates[0])
		return err
	}
	return c
}
