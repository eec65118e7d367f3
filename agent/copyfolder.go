package agent

import (
	"bytes"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/ashore-mesh/ashore/internal/wholefile"
)

// copyFolder is the folder with the copy of what is held: "key", which is random and this machine's; "held", the copy; and
// "confirmed", when a control plane confirmed it last. Not safe for concurrent use.
type copyFolder struct {
	dir   string
	owner copyOwner
	key   []byte
	tag   []byte // the end of the copy that stands there
}

// machineIDFiles are where a machine's identity may stand. A copy on a cloned disk is of no use when they differ.
func machineIDFiles() []string { return []string{"/etc/machine-id", "/var/lib/dbus/machine-id"} }

// openCopyFolder makes the folder and its key when they are missing. Errors name the path.
func openCopyFolder(dir string, owner copyOwner) (*copyFolder, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, diskError("folder for the copy of the configuration", err)
	}
	for _, path := range machineIDFiles() {
		if b, err := os.ReadFile(path); err == nil && len(bytes.TrimSpace(b)) > 0 {
			owner.machine = string(bytes.TrimSpace(b))
			break
		}
	}
	secret, err := copyKey(filepath.Join(dir, "key"))
	if err != nil {
		return nil, err
	}
	salt := fmt.Sprintf("%q %q %q", owner.machine, owner.node, owner.identity)
	key, err := hkdf.Key(sha256.New, secret, []byte(salt), "ashore-agent copy of the configuration", sha256.Size)
	if err != nil {
		return nil, fmt.Errorf("derive the key of the copy: %w", err)
	}
	return &copyFolder{dir: dir, owner: owner, key: key}, nil
}

// copyKey reads the random key, or makes it.
func copyKey(path string) ([]byte, error) {
	b, err := os.ReadFile(path)
	switch {
	case err == nil && len(b) == sha256.Size:
		return b, nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, diskError("read the key of the copy", err)
	}
	b = make([]byte, sha256.Size)
	if _, err := rand.Read(b); err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	if err := wholefile.Write(path, b); err != nil {
		return nil, diskError("keep the key of the copy", err)
	}
	return b, nil
}

func (c *copyFolder) path() string { return filepath.Join(c.dir, "held") }

// load reads the copy and calls f for each record once the whole is verified. Errors: fs.ErrNotExist when there is none, or why
// it is not used; then what f was told may not be used either.
func (c *copyFolder) load(now time.Time, maxAge time.Duration, f func(copyHeader, *copyRecord) error) (h copyHeader, err error) {
	file, err := os.Open(c.path())
	if err != nil {
		return h, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	info, err := file.Stat()
	if err != nil {
		return h, err
	}
	confirmed := false
	h, err = readCopy(file, info.Size(), c.owner, c.key, func(h copyHeader, r *copyRecord) error {
		if !confirmed { // the times of a copy count once it is verified
			confirmed = true
			c.confirmation(file, &h)
			if err := h.usable(now, maxAge); err != nil {
				return err
			}
		}
		return f(h, r)
	})
	if err == nil {
		c.confirmation(file, &h)
		err = h.usable(now, maxAge)
	}
	return h, err
}

// confirmation takes in when the copy was confirmed after it was written.
func (c *copyFolder) confirmation(file *os.File, h *copyHeader) {
	info, err := file.Stat()
	if err != nil || info.Size() < copyTag {
		return
	}
	tag := make([]byte, copyTag)
	if _, err := file.ReadAt(tag, info.Size()-copyTag); err != nil {
		return
	}
	c.tag = tag
	b, err := os.ReadFile(filepath.Join(c.dir, "confirmed"))
	if err != nil || len(b) != 8+copyTag || !hmac.Equal(b[8:], c.confirmTag(b[:8])) {
		return // it is that of another copy, or none: what the copy says itself holds
	}
	if t := time.Unix(0, int64(binary.BigEndian.Uint64(b))); t.After(h.confirmed) {
		h.confirmed = t
	}
}

// confirmTag proves a time for the copy that stands there.
func (c *copyFolder) confirmTag(at []byte) []byte {
	mac := hmac.New(sha256.New, c.key)
	mac.Write([]byte("confirmed"))
	mac.Write(at)
	mac.Write(c.tag)
	return mac.Sum(nil)
}

// confirm notes that a control plane confirms the copy that stands there.
func (c *copyFolder) confirm(at time.Time) error {
	if c.tag == nil {
		return nil
	}
	b := binary.BigEndian.AppendUint64(nil, uint64(at.UnixNano()))
	return wholefile.Write(filepath.Join(c.dir, "confirmed"), append(b, c.confirmTag(b)...))
}

// save replaces the copy, whole or not at all.
func (c *copyFolder) save(h copyHeader, all records) error {
	h.owner = c.owner
	end := &tail{}
	err := wholefile.WriteFrom(c.path(), func(w io.Writer) error { return writeCopy(io.MultiWriter(w, end), h, all, c.key) })
	if err != nil {
		return diskError("keep the copy of the configuration", err)
	}
	c.tag = end.last
	return wholefile.SyncFolder(c.dir)
}

// tail keeps the last bytes of what is written.
type tail struct{ last []byte }

func (t *tail) Write(b []byte) (int, error) {
	t.last = append(t.last, b[max(0, len(b)-copyTag):]...)
	if n := len(t.last) - copyTag; n > 0 {
		t.last = append(t.last[:0], t.last[n:]...)
	}
	return len(b), nil
}
