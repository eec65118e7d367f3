package ca

import (
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/ashore-mesh/ashore/internal/readfile"
	"github.com/ashore-mesh/ashore/internal/wholefile"
)

// pair is a key and its certificate. They stand in one file, so that a kill leaves both or neither.
type pair struct {
	key  crypto.Signer
	cert *x509.Certificate
}

// under says whether the pair's certificate is signed by a root and valid now.
func (p *pair) under(root *x509.Certificate, now time.Time) bool {
	return p.cert.CheckSignatureFrom(root) == nil && !now.Before(p.cert.NotBefore) && now.Before(p.cert.NotAfter)
}

// folder is the path of the folder where keys are kept.
type folder string

func (f folder) at(name string) string { return filepath.Join(string(f), name) }

// open makes the folder as far as it is not there, for its owner alone, and removes what a kill
// left half-written. A folder that wholefile.Guard refuses is an error.
func (f folder) open() error {
	if err := os.MkdirAll(string(f), 0o700); err != nil {
		return err
	}
	if err := wholefile.Guard(string(f), "replace it with a folder that this user alone can write to"); err != nil {
		return err
	}
	if err := os.Chmod(string(f), 0o700); err != nil {
		return err
	}
	return wholefile.Clean(string(f))
}

// rename gives a file the name of another, which it replaces.
func (f folder) rename(from, to string) error {
	if err := os.Rename(f.at(from), f.at(to)); err != nil {
		return err
	}
	return wholefile.SyncFolder(string(f))
}

// remove deletes a file.
func (f folder) remove(name string) error {
	if err := os.Remove(f.at(name)); err != nil {
		return err
	}
	return wholefile.SyncFolder(string(f))
}

// has says whether there is anything by a name.
func (f folder) has(name string) bool {
	_, err := os.Lstat(f.at(name))
	return err == nil
}

// writePair keeps a key and its certificate, readable by its owner alone.
func (f folder) writePair(name string, p *pair) error {
	text, err := EncodeKey(p.key)
	if err != nil {
		return err
	}
	return wholefile.Write(f.at(name), append(text, EncodeCertificates(p.cert)...))
}

// pair reads what writePair wrote; nil when there is no such file. Errors name the file, and hold
// nothing of the key.
func (f folder) pair(name string) (*pair, error) {
	text, info, err := readfile.Read(f.at(name), maxPlugged)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	}
	if err := checkKeyMode(f.at(name), info.Mode()); err != nil {
		return nil, err
	}
	p, err := decodePair(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.at(name), err)
	}
	return p, nil
}

// decodePair reads a key and the certificate after it.
func decodePair(text []byte) (*pair, error) {
	block, rest := pem.Decode(text)
	if block == nil {
		return nil, errors.New("it holds no PEM block: it is damaged or was cut off")
	}
	key, err := DecodeKey(text[:len(text)-len(rest)])
	if err != nil {
		return nil, err
	}
	certs, err := DecodeCertificates(rest)
	switch {
	case err != nil:
		return nil, fmt.Errorf("after the key: %w", err)
	case len(certs) != 1:
		return nil, fmt.Errorf("it holds %d certificates, want the key's own", len(certs))
	case !sameKey(certs[0].PublicKey, key.Public()):
		return nil, errors.New("its key is not that of its certificate")
	}
	return &pair{key: key, cert: certs[0]}, nil
}
