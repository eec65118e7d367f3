package relay

import (
	"bytes"
	"compress/gzip"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/ashore-mesh/ashore/internal/readfile"
	"github.com/ashore-mesh/ashore/internal/wholefile"
)

// fileVersion is the version of fileContent. The cache file is a fileContent, encoded as gob and
// compressed with gzip, which adds a checksum.
const fileVersion = 3

// maxFile is the maximum size of the file, in bytes.
const maxFile = 1 << 30

// fileContent is the content of a cache file.
type fileContent struct {
	Version int
	// Owner identifies the workload: node, identity and group.
	Owner string
	// Confirmed is when a control plane last confirmed the content.
	Confirmed time.Time
	Types     map[string]*cachedType // by type URL
}

// save writes the cache atomically to a file with mode 0600.
func (c *cache) save(path, owner string, confirmed time.Time) error {
	err := wholefile.WriteFrom(path, func(w io.Writer) error {
		out, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
		if err != nil {
			return err
		}
		err = gob.NewEncoder(out).Encode(fileContent{fileVersion, owner, confirmed.UTC(), c.snapshot()})
		return errors.Join(err, out.Close())
	})
	if err != nil {
		return fmt.Errorf("write the cache of the configuration: %w", err)
	}
	return wholefile.SyncFolder(filepath.Dir(path))
}

// load reads the cache file. It returns the cache and when a control plane last confirmed it.
// Errors: fs.ErrNotExist, or why the file is not used.
func load(path, owner string, now time.Time, maxAge time.Duration) (*cache, time.Time, error) {
	raw, _, err := readfile.Read(path, maxFile)
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
	in, err := gzip.NewReader(bytes.NewReader(raw))
	if err != nil {
		return nil, fmt.Errorf("it is damaged: %w", err)
	}
	body, err := io.ReadAll(io.LimitReader(in, maxFile)) // gzip verifies the checksum at the end
	content := &fileContent{}
	if err == nil {
		err = gob.NewDecoder(bytes.NewReader(body)).Decode(content)
	}
	if err != nil {
		return nil, fmt.Errorf("it is damaged: %w", err)
	}
	return content, nil
}

// check returns why a file is not used; nil if it is.
func (f *fileContent) check(owner string, now time.Time, maxAge time.Duration) error {
	switch age := now.Sub(f.Confirmed); {
	case f.Version != fileVersion:
		return fmt.Errorf("its form is %d, this agent knows %d", f.Version, fileVersion)
	case f.Owner != owner:
		return fmt.Errorf("it is of %.300q, this workload is %q", f.Owner, owner)
	case age > maxAge:
		return fmt.Errorf("it is too old: a control plane confirmed it last at %s, %s ago, and %s is the bound",
			f.Confirmed.UTC().Format(time.RFC3339), age.Round(time.Second), maxAge)
	}
	return nil
}
