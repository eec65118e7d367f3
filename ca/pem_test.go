package ca

import (
	"crypto"
	"strings"
	"testing"
)

// A key that is written is read again, whatever its kind.
func TestKeys(t *testing.T) {
	t.Parallel()
	for _, key := range []crypto.Signer{NewKey(), rsaKey(t)} {
		text, err := EncodeKey(key)
		if err != nil {
			t.Fatal(err)
		}
		again, err := DecodeKey(text)
		if err != nil || !sameKey(again.Public(), key.Public()) {
			t.Errorf("%T: %v", key, err)
		}
	}
}

// Certificates that are written are read again; anything else is refused.
func TestCertificates(t *testing.T) {
	t.Parallel()
	a, b := testRoot(t).Cert, testRoot(t).Cert
	certs, err := DecodeCertificates(EncodeCertificates(a, b))
	if err != nil || len(certs) != 2 || !certs[0].Equal(a) || !certs[1].Equal(b) {
		t.Errorf("got %d certificates, error %v", len(certs), err)
	}
	key, err := EncodeKey(NewKey())
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{"nothing": nil, "a key": key, "no PEM": []byte("x"),
		"a broken one": []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")} {
		if _, err := DecodeCertificates(text); err == nil {
			t.Errorf("%s is read", name)
		}
	}
	for name, text := range map[string]string{
		"a certificate": string(EncodeCertificates(a)), "nothing": "",
		"an encrypted key": "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n",
		"a broken key":     "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
	} {
		if _, err := DecodeKey([]byte(text)); err == nil {
			t.Errorf("%s is read as a key", name)
		}
	}
}

// Of a key with a password is said how to do without, in both forms in which openssl writes one.
func TestEncryptedKeys(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"PKCS #8": "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n",
		"old": "-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n" +
			"-----BEGIN EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00\n\nAAAA\n-----END EC PRIVATE KEY-----\n",
	} {
		if _, err := decodePair(EncodeCertificates(testRoot(t).Cert), []byte(text)); err == nil || !strings.Contains(err.Error(),
			"is encrypted with a password") || !strings.Contains(err.Error(), "openssl pkey -in FILE -out NEW") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
