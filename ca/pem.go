package ca

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
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
	for rest := text; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
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

// errEncrypted says that a key needs a password.
var errEncrypted = errors.New("its private key is encrypted with a password, and there is nobody to ask for it: " +
	"decrypt it with " +
	"\"(umask 077; openssl pkey -in FILE -out NEW)\", and put NEW into the place of FILE")

// DecodeKey reads the first private key of a PEM text: PKCS #8, PKCS #1 or SEC 1. Errors never hold
// any of the text.
func DecodeKey(text []byte) (crypto.Signer, error) {
	for rest := text; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return nil, errors.New("it holds no PEM block of a private key")
		}
		// RFC 1421, of old openssl
		if block.Headers["DEK-Info"] != "" || strings.Contains(block.Headers["Proc-Type"], "ENCRYPTED") {
			return nil, errEncrypted
		}
		var key any
		var err error
		switch block.Type {
		case "EC PARAMETERS": // stands before the key in what openssl writes
			continue
		case "PRIVATE KEY":
			key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
		case "RSA PRIVATE KEY":
			key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
		case "EC PRIVATE KEY":
			key, err = x509.ParseECPrivateKey(block.Bytes)
		case "ENCRYPTED PRIVATE KEY":
			return nil, errEncrypted
		default:
			return nil, fmt.Errorf("its PEM block is a %.40q, want a PRIVATE KEY", block.Type)
		}
		if err != nil {
			return nil, errors.New("its private key cannot be read")
		}
		signer, ok := key.(crypto.Signer)
		if !ok {
			return nil, errors.New("its private key cannot sign")
		}
		return signer, checkKey(signer.Public())
	}
}
