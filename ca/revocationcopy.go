package ca

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"github.com/ashore-mesh/ashore/internal/readfile"
)

// copyFile is beside the root's key: what a lost or older store must not make forgotten.
const copyFile = "revocations.json"

// maxCopy bounds it, in bytes.
const maxCopy = 32 << 20

// copyHead is the file: a body and what it is checked by.
type copyHead struct {
	Format int `json:"v"`
	// SHA256 is that of Body, in hexadecimal digits.
	SHA256 string          `json:"sha256"`
	Body   json.RawMessage `json:"body"`
}

// revocationCopy is everybody who is out, as the last change left it.
type revocationCopy struct {
	// Epoch is that of Revocations.
	Epoch uint64 `json:"epoch"`
	// Revocations are all there is, with the certificates that they put out.
	Revocations []Revocation `json:"revocations"`
	// Unkept are the names of the records of those that the store did not have when the copy was
	// made.
	Unkept []string `json:"unkept,omitempty"`
}

// errCopy says that the copy cannot be believed.
var errCopy = errors.New("the copy of the revocations is damaged")

// encode is the file's text.
func (c revocationCopy) encode() ([]byte, error) {
	body, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(body)
	text, err := json.Marshal(copyHead{Format: 1, SHA256: hex.EncodeToString(sum[:]), Body: body})
	if err == nil && len(text) > maxCopy {
		return nil, fmt.Errorf("it would have %d bytes, at most %d are read", len(text), maxCopy)
	}
	return text, err
}

// decodeCopy reads it. Errors: errCopy, with what is wrong.
func decodeCopy(text []byte) (revocationCopy, error) {
	var head copyHead
	if err := json.Unmarshal(text, &head); err != nil {
		return revocationCopy{}, fmt.Errorf("%w: %w", errCopy, err)
	}
	if head.Format != 1 {
		return revocationCopy{}, fmt.Errorf("%w: it has format %d, this version reads 1", errCopy, head.Format)
	}
	if sum := sha256.Sum256(head.Body); hex.EncodeToString(sum[:]) != head.SHA256 {
		return revocationCopy{}, fmt.Errorf("%w: its checksum is not that of what it holds", errCopy)
	}
	var c revocationCopy
	if err := json.Unmarshal(head.Body, &c); err != nil {
		return revocationCopy{}, fmt.Errorf("%w: %w", errCopy, err)
	}
	for _, x := range c.Revocations {
		if err := x.check(); err != nil {
			return revocationCopy{}, fmt.Errorf("%w: %w", errCopy, err)
		}
		if name, err := x.Kind.normalise(x.Name); err != nil || name != x.Name || x.Epoch > c.Epoch {
			return revocationCopy{}, fmt.Errorf("%w: it has a revocation of the %s %.200q with epoch %d, which none can be", errCopy, x.Kind, x.Name, x.Epoch)
		}
	}
	return c, nil
}

// readCopy reads the copy of a folder; found is false when there is none. Errors: errCopy, or those
// of the file system.
func (f folder) readCopy() (c revocationCopy, found bool, err error) {
	text, _, err := readfile.Read(f.at(copyFile), maxCopy)
	if errors.Is(err, fs.ErrNotExist) {
		return c, false, nil
	}
	if err == nil {
		c, err = decodeCopy(text)
	}
	if err != nil {
		return revocationCopy{}, true, fmt.Errorf("%s: %w", f.at(copyFile), err)
	}
	return c, true, nil
}

// copyNow puts what is in force beside the root, unless it stands there, and says whether it does.
func (l *Ledger) copyNow(set *revokedSet) bool {
	if l.dir.path == "" {
		return true
	}
	l.copying.Lock()
	defer l.copying.Unlock()
	c := revocationCopy{Epoch: set.Epoch, Revocations: append([]Revocation{}, set.List...)}
	for _, x := range l.unkept.list() {
		c.Unkept = append(c.Unkept, revocationKey(x.Kind, x.Name).Name)
	}
	text, err := c.encode()
	if err == nil && bytes.Equal(text, l.copied) && l.dir.has(copyFile) {
		return true
	}
	if err == nil {
		err = l.dir.write(copyFile, text, 0o600)
	}
	if err == nil {
		l.copied = text
	}
	if (err == nil) != (l.copyErr == nil) {
		if err != nil {
			l.log.Error("the copy of the revocations cannot be kept", "file", l.dir.at(copyFile), "error", err)
		} else {
			l.log.Info("the copy of the revocations is kept again", "file", l.dir.at(copyFile))
		}
	}
	l.copyErr = err
	return err == nil
}

// copyProblem is why the copy is not what is in force; nil: it is.
func (l *Ledger) copyProblem() error {
	l.copying.Lock()
	defer l.copying.Unlock()
	return l.copyErr
}
