package ca

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"
	securityv1 "istio.io/api/security/v1alpha1"
)

// ErrRequest is why a request for a certificate is refused: it is the caller's fault.
var ErrRequest = errors.New("bad certificate signing request")

const (
	// maxMessage bounds a request, in bytes.
	maxMessage = 64 << 10
	// maxRequest bounds its certificate signing request: one with an RSA key of 4096 bits has 1.6 KB.
	maxRequest = 16 << 10
	// RSA keys have at least minRSA and at most maxRSA bits: shorter ones are weak, and longer ones
	// cost their verifiers much.
	minRSA, maxRSA = 2048, 4096
)

// Request is a certificate signing request whose sender has the private key. Only an external signer
// reads its names and extensions.
type Request struct {
	// Key is the public key.
	Key crypto.PublicKey
	// KeyHash is the SHA-256 of its SubjectPublicKeyInfo, in hexadecimal digits.
	KeyHash string

	csr *x509.CertificateRequest
}

// ask is what a caller asks for.
type ask struct {
	*Request
	// Workload is how the caller names itself within its namespace, or empty.
	Workload string
	// Group is the WorkloadGroup that the caller means to join, "namespace/name", or empty.
	Group string
}

// parseAsk reads an encoded istio.v1.auth.IstioCertificateRequest. Errors: ErrRequest.
func parseAsk(raw []byte) (*ask, error) {
	if len(raw) > maxMessage {
		return nil, fmt.Errorf("%w: the call has %d bytes, at most %d are allowed", ErrRequest, len(raw), maxMessage)
	}
	r := &securityv1.IstioCertificateRequest{}
	if err := proto.Unmarshal(raw, r); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRequest, err)
	}
	fields := r.GetMetadata().GetFields()
	for _, key := range []string{"CertSigner", "ImpersonatedIdentity"} {
		if fields[key].GetStringValue() != "" {
			return nil, fmt.Errorf("%w: the metadata %s is not supported: a certificate is for who asks, signed by "+
				"the mesh's own authority", ErrRequest, key)
		}
	}
	request, err := ParseRequest([]byte(r.GetCsr()))
	if err != nil {
		return nil, err
	}
	return &ask{Request: request, Workload: fields["Workload"].GetStringValue(),
		Group: fields["Group"].GetStringValue()}, nil
}

// ParseRequest reads one PEM block of a certificate signing request, and checks its signature and
// the strength of its key. Errors: ErrRequest.
func ParseRequest(text []byte) (*Request, error) {
	bad := func(format string, args ...any) (*Request, error) {
		return nil, fmt.Errorf("%w: %w", ErrRequest, fmt.Errorf(format, args...))
	}
	if len(text) > maxRequest {
		return bad("it has %d bytes, at most %d are allowed", len(text), maxRequest)
	}
	block, rest := pem.Decode(text)
	switch {
	case block == nil:
		return bad("it is not PEM")
	case block.Type != "CERTIFICATE REQUEST" && block.Type != "NEW CERTIFICATE REQUEST":
		return bad("its PEM block is a %.40q, want a CERTIFICATE REQUEST", block.Type)
	}
	if next, _ := pem.Decode(rest); next != nil {
		return bad("it has several PEM blocks, want one")
	}
	csr, err := x509.ParseCertificateRequest(block.Bytes)
	if err == nil {
		err = checkKey(csr.PublicKey)
	}
	if err != nil {
		return bad("%w", err)
	}
	if err := csr.CheckSignature(); err != nil {
		return bad("its signature: %w", err)
	}
	return &Request{Key: csr.PublicKey, KeyHash: hexSum(csr.RawSubjectPublicKeyInfo), csr: csr}, nil
}

// checkKey returns what is wrong with a public key.
func checkKey(key crypto.PublicKey) error {
	switch k := key.(type) {
	case *ecdsa.PublicKey:
		if k.Curve != elliptic.P256() && k.Curve != elliptic.P384() {
			return errors.New("its key is on a curve that is not allowed, want P-256 or P-384")
		}
	case *rsa.PublicKey:
		if n := k.N.BitLen(); n < minRSA || n > maxRSA {
			return fmt.Errorf("its RSA key has %d bits, want %d to %d", n, minRSA, maxRSA)
		}
	default:
		return errors.New("its key is of a kind that is not allowed, want ECDSA or RSA")
	}
	return nil
}
