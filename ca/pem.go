package ca

import (
	"bytes"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
)

// EncodeCertificates writes certificates as PEM, one block after the other.
func EncodeCertificates(certs ...*x509.Certificate) []byte {
	var b bytes.Buffer
	for _, c := range certs {
		b.Grow(len(c.Raw)*3/2 + 64)                                       // base64, ends of lines, and both marks
		_ = pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: c.Raw}) // a buffer takes everything
	}
	return b.Bytes()
}

// DecodeCertificates reads PEM blocks of certificates, at least one. Blocks of other kinds are an
// error.
func DecodeCertificates(text []byte) ([]*x509.Certificate, error) {
	var out []*x509.Certificate
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("PEM block %d is a %.40q, want a CERTIFICATE", len(out)+1, block.Type)
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("certificate %d: %w", len(out)+1, err)
		}
		out = append(out, c)
	}
	if len(out) == 0 {
		return nil, errors.New("it holds no PEM block of a certificate")
	}
	return out, nil
}

// EncodeKey writes a private key as PEM of PKCS #8.
func EncodeKey(key crypto.Signer) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// DecodeKey reads a private key that EncodeKey wrote, at the beginning of a text. Errors hold nothing
// of the text.
func DecodeKey(text []byte) (crypto.Signer, error) {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, errors.New("it holds no PEM block of a private key")
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	signer, ok := key.(crypto.Signer)
	if err != nil || !ok {
		return nil, errors.New("its private key cannot be read")
	}
	return signer, checkKey(signer.Public())
}

// pair is a key and its certificate.
type pair struct {
	key  crypto.Signer
	cert *x509.Certificate
}

// decodePair reads a certificate and its key: PKCS #8, PKCS #1 or SEC 1. Errors hold nothing of the
// key.
func decodePair(cert, key []byte) (*pair, error) {
	c, err := tls.X509KeyPair(cert, key)
	if err != nil && bytes.Contains(key, []byte("ENCRYPTED")) {
		return nil, errors.New("its private key is encrypted with a password: decrypt it with " +
			"\"(umask 077; openssl pkey -in FILE -out NEW)\", and put NEW into the place of FILE")
	}
	if err != nil {
		return nil, err
	}
	signer, ok := c.PrivateKey.(crypto.Signer)
	if !ok {
		return nil, errors.New("its private key cannot sign")
	}
	return &pair{key: signer, cert: c.Leaf}, checkKey(signer.Public())
}
