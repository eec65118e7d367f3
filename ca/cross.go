package ca

import (
	"crypto/x509"
	"io"
	"time"
)

// cross certifies the key of another root under that root's own name, so that those who trust s
// alone believe what the other signs. It ends with either of them. Errors: ErrSigner.
func (p *pair) cross(other *x509.Certificate, now time.Time, random io.Reader) (*x509.Certificate, error) {
	serial, err := newSerial(random)
	if err != nil {
		return nil, err
	}
	t := &x509.Certificate{
		SerialNumber:          serial,
		RawSubject:            other.RawSubject,
		NotBefore:             later(now.Add(-backdate), p.cert.NotBefore).UTC().Truncate(time.Second),
		NotAfter:              earlier(other.NotAfter, p.cert.NotAfter),
		KeyUsage:              other.KeyUsage,
		BasicConstraintsValid: true,
		IsCA:                  true,
		SubjectKeyId:          other.SubjectKeyId,
	}
	return createCertificate(t, p.cert, other.PublicKey, p.key, random)
}
