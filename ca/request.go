package ca

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
)

// ErrRequest is why a certificate signing request is not signed: it is the caller's fault.
var ErrRequest = errors.New("bad certificate signing request")

// maxRequest bounds an encoded request: one with a key of 4096 bits has 1.6 KB.
const maxRequest = 16 << 10

// RSA keys have at least minRSA and at most maxRSA bits: shorter ones are weak, and longer ones
// cost their verifiers much.
const minRSA, maxRSA = 2048, 4096

// Request is a certificate signing request whose sender has the private key. Only the public key
// counts; names and extensions that it asks for are ignored.
type Request struct {
	// Key is the public key.
	Key crypto.PublicKey
	// KeyHash is the SHA-256 of its SubjectPublicKeyInfo.
	KeyHash [sha256.Size]byte
}

// ParseRequest reads one PEM block of a request, checks its signature and the strength of its key.
// Errors: ErrRequest with what is wrong.
func ParseRequest(text []byte) (*Request, error) {
	if len(text) > maxRequest {
		return nil, fmt.Errorf("%w: it has %d bytes, at most %d are allowed", ErrRequest, len(text), maxRequest)
	}
	block, rest := pem.Decode(text)
	switch {
	case block == nil:
		return nil, fmt.Errorf("%w: it is not PEM", ErrRequest)
	case block.Type != "CERTIFICATE REQUEST" && block.Type != "NEW CERTIFICATE REQUEST":
		return nil, fmt.Errorf("%w: its PEM block is a %.40q, want a CERTIFICATE REQUEST", ErrRequest, block.Type)
	}
	if next, _ := pem.Decode(rest); next != nil {
		return nil, fmt.Errorf("%w: it has several PEM blocks, want one", ErrRequest)
	}
	csr, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRequest, err)
	}
	if err := checkKey(csr.PublicKey); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRequest, err)
	}
	if err := csr.CheckSignature(); err != nil {
		return nil, fmt.Errorf("%w: its signature: %w", ErrRequest, err)
	}
	return &Request{Key: csr.PublicKey, KeyHash: sha256.Sum256(csr.RawSubjectPublicKeyInfo)}, nil
}

// checkKey says what is wrong with a public key.
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
