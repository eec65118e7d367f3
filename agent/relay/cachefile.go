package relay

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/ashore-mesh/ashore/internal/wholefile"
)

// The cache file is fileMagic, a fileContent in gob, and the SHA-256 of both.
const fileMagic = "ashore-agent cache 2\n"

const (
	// maxFile is the maximum size of the file, in bytes.
	maxFile = 1 << 30
	// maxClockError is how far in the future the file's time may be.
	maxClockError = 5 * time.Minute
)

// fileContent is the content of a cache file.
type fileContent struct {
	// Owner identifies the workload: node, identity and group.
	Owner string
	// Confirmed is when a control plane last confirmed the content.
	Confirmed time.Time
	Types     map[string]*cachedType // by type URL
}

// save writes the cache atomically to a file with mode 0600.
func (c *cache) save(path, owner string, confirmed time.Time) error {
	err := wholefile.WriteFrom(path, func(w io.Writer) error {
		sum, out := sha256.New(), bufio.NewWriter(w)
		both := io.MultiWriter(out, sum)
		if _, err := io.WriteString(both, fileMagic); err != nil {
			return err
		}
		if err := gob.NewEncoder(both).Encode(fileContent{owner, confirmed.UTC(), c.snapshot()}); err != nil {
			return err
		}
		if _, err := out.Write(sum.Sum(nil)); err != nil {
			return err
		}
		return out.Flush()
	})
	if err != nil {
		return fmt.Errorf("write the cache of the configuration: %w", err)
	}
	return wholefile.SyncFolder(filepath.Dir(path))
}

// load reads the cache file of an owner. Errors: fs.ErrNotExist, or why the file is not used.
func load(path, owner string, now time.Time, maxAge time.Duration) (*cache, time.Time, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, time.Time{}, err
	}
	if info.Size() > maxFile {
		return nil, time.Time{}, fmt.Errorf("it has %d bytes, at most %d are read", info.Size(), maxFile)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, time.Time{}, err
	}
	content, err := decodeFile(raw)
	if err == nil {
		err = content.check(owner, now, maxAge)
	}
	if err != nil {
		return nil, time.Time{}, err
	}
	c := newCache()
	if content.Types != nil {
		c.types = content.Types
	}
	return c, content.Confirmed, nil
}

// decodeFile decodes a cache file.
func decodeFile(raw []byte) (*fileContent, error) {
	body, ok := bytes.CutPrefix(raw, []byte(fileMagic))
	if !ok || len(body) < sha256.Size {
		return nil, errors.New("it is not a cache of this version of ashore-agent, or it is cut short")
	}
	body = body[:len(body)-sha256.Size]
	if sum := sha256.Sum256(raw[:len(fileMagic)+len(body)]); !bytes.HasSuffix(raw, sum[:]) {
		return nil, errors.New("it is damaged")
	}
	content := &fileContent{}
	if err := gob.NewDecoder(bytes.NewReader(body)).Decode(content); err != nil {
		return nil, fmt.Errorf("it is damaged: %w", err)
	}
	return content, nil
}

// check returns why a file is not used; nil if it is.
func (h *fileContent) check(owner string, now time.Time, maxAge time.Duration) error {
	at := h.Confirmed.UTC().Format(time.RFC3339)
	switch age := now.Sub(h.Confirmed); {
	case h.Owner != owner:
		return fmt.Errorf("it is of %.300q, this workload is %q", h.Owner, owner)
	case age < -maxClockError:
		return fmt.Errorf("it is from the future: it was confirmed at %s, and this machine's clock says %s; "+
			"set the clock (timedatectl, chrony)", at, now.UTC().Format(time.RFC3339))
	case age > maxAge:
		return fmt.Errorf("it is too old: a control plane confirmed it last at %s, %s ago, and %s is the bound",
			at, age.Round(time.Second), maxAge)
	}
	return nil
}
