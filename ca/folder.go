package ca

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/ashore-mesh/ashore/internal/readfile"
	"github.com/ashore-mesh/ashore/internal/wholefile"
)

// under reports whether the pair's certificate is signed by a root and valid now.
func (p *pair) under(root *x509.Certificate, now time.Time) bool {
	return p.cert.CheckSignatureFrom(root) == nil && !now.Before(p.cert.NotBefore) && now.Before(p.cert.NotAfter)
}

// folder is the path of the folder where keys are stored.
type folder string

func (f folder) at(name string) string { return filepath.Join(string(f), name) }

// open creates the folder if it is missing, for its owner alone, and removes what was left of
// interrupted writes. A folder that wholefile.Guard refuses is an error.
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

// rename renames a file, and replaces one that has the new name.
func (f folder) rename(from, to string) error {
	if err := os.Rename(f.at(from), f.at(to)); err != nil {
		return err
	}
	return wholefile.SyncFolder(string(f))
}

// has reports whether a file exists.
func (f folder) has(name string) bool {
	_, err := os.Lstat(f.at(name))
	return err == nil
}

// writePair writes a key and its certificate into one file, readable by its owner alone. An
// interrupted write leaves both or neither.
func (f folder) writePair(name string, p *pair) error {
	text, err := EncodeKey(p.key)
	if err != nil {
		return err
	}
	return wholefile.Write(f.at(name), append(text, EncodeCertificates(p.cert)...))
}

// pair reads what writePair wrote; nil if there is no such file. Errors name the file, and hold
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
	p, err := decodePair(text, text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.at(name), err)
	}
	return p, nil
}

// checkKeyMode refuses a key that others than its owner and group can read, or that others than its
// owner can write.
func checkKeyMode(path string, mode fs.FileMode) error {
	switch {
	case mode&0o004 != 0:
		return fmt.Errorf("%s: every user of this machine can read the key (mode %04o): chmod 600 it, and make a new "+
			"one if others may have read it", path, mode.Perm())
	case mode&0o022 != 0:
		return fmt.Errorf("%s: others than its owner can change the key (mode %04o): chmod 600 it", path, mode.Perm())
	}
	return nil
}
