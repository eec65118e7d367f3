package ca

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	securityv1 "istio.io/api/security/v1alpha1"
)

// replicaCallTimeout bounds a call to another replica.
const replicaCallTimeout = 5 * time.Second

// fetch requests an intermediate below a root from another replica. The certificate of the control
// plane, below a trusted root, proves who asks.
func (s *selfSigned) fetch(ctx context.Context, root *x509.Certificate, now time.Time) (*pair, error) {
	v := s.view.Load()
	if v == nil {
		return nil, errors.New("this replica has just started, and asks again when it signs")
	}
	client := controlPlaneTLS(s.bundle, s.config.TrustDomain, now)
	client.Certificates = []tls.Certificate{*v.server}
	key := NewKey()
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSigner, err)
	}
	csr := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
	errs := []error{errors.New("no other replica gives this one an intermediate")}
	for _, r := range s.config.Replicas() {
		cert, err := requestIntermediate(ctx, r.Address, client, csr)
		p := &pair{key: key, cert: cert}
		switch {
		case err != nil:
		case !cert.IsCA || !sameKey(cert.PublicKey, key.Public()):
			err = errors.New("it answered with another certificate")
		case !p.under(root, now):
			err = fmt.Errorf("its intermediate is valid from %s to %s, and this machine's clock says %s: set the clock "+
				"that is wrong",
				cert.NotBefore.Format(time.RFC3339), cert.NotAfter.Format(time.RFC3339), now.UTC().Format(time.RFC3339))
		default:
			return p, nil
		}
		errs = append(errs, fmt.Errorf("replica %s: %w", r.Address, err))
	}
	return nil, errors.Join(errs...)
}

// requestIntermediate calls a replica.
func requestIntermediate(ctx context.Context, address string, client *tls.Config, csr string) (*x509.Certificate,
	error) {
	ctx, cancel := context.WithTimeout(ctx, replicaCallTimeout)
	defer cancel()
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(credentials.NewTLS(client)))
	if err != nil {
		return nil, err
	}
	defer conn.Close() //nolint:errcheck // nothing more is sent
	out := &securityv1.IstioCertificateResponse{}
	err = conn.Invoke(ctx, "/"+replicaService+"/"+replicaMethod, &securityv1.IstioCertificateRequest{Csr: csr}, out)
	if err != nil {
		return nil, errors.New(cmp.Or(status.Convert(err).Message(), err.Error()))
	}
	certs, err := DecodeCertificates([]byte(strings.Join(out.GetCertChain(), "")))
	if err != nil {
		return nil, err
	}
	return certs[0], nil
}
