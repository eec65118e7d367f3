package identity

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/structpb"
	securityv1 "istio.io/api/security/v1alpha1"

	"github.com/ashore-mesh/ashore/ca"
)

// dialTLS opens a connection with ashored, with a workload's certificate if there is one. The test
// does not verify the server.
func dialTLS(address string, own *tls.Certificate, more ...grpc.DialOption) (*grpc.ClientConn, error) {
	config := &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13}
	if own != nil {
		config.Certificates = []tls.Certificate{*own}
	}
	more = append(more, grpc.WithTransportCredentials(credentials.NewTLS(config)))
	return grpc.NewClient(address, more...)
}

// certify asks for a certificate for key: with a token, to join by that name, or with the
// certificate of the connection.
func certify(ctx context.Context, conn *grpc.ClientConn, key crypto.Signer, token, name string) (*tls.Certificate,
	error) {
	csr, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		return nil, err
	}
	if token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
	}
	answer, err := securityv1.NewIstioCertificateServiceClient(conn).CreateCertificate(ctx,
		&securityv1.IstioCertificateRequest{
			Csr:      string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: csr})),
			Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{"Workload": structpb.NewStringValue(name)}},
		})
	if err != nil {
		return nil, err
	}
	chain := answer.GetCertChain()
	if len(chain) < 2 {
		return nil, fmt.Errorf("the answer has %d elements, want a chain and roots", len(chain))
	}
	out := &tls.Certificate{PrivateKey: key}
	for _, text := range chain[:len(chain)-1] {
		certs, err := ca.DecodeCertificates([]byte(text))
		if err != nil {
			return nil, err
		}
		for _, c := range certs {
			out.Certificate = append(out.Certificate, c.Raw)
		}
	}
	out.Leaf, err = x509.ParseCertificate(out.Certificate[0])
	return out, err
}

// renew asks for a certificate with the one that a workload has, as an agent does.
func renew(ctx context.Context, address string, own *tls.Certificate) (_ *tls.Certificate, err error) {
	conn, err := dialTLS(address, own)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	key := ca.NewKey()
	return certify(ctx, conn, key, "", "")
}
