package relay

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/ashore-mesh/ashore/internal/wholefile"
	"github.com/ashore-mesh/ashore/xds/ads"
)

// The cache file is: fileMagic; the header as JSON; one encoded discovery response for each type;
// and the SHA-256 of all that. Header and responses have their length before them, as a varint.
const fileMagic = "ashore-agent cache 1\n"

const (
	// maxFile bounds the file, so that a wrong one is not read into memory.
	maxFile = 1 << 30
	// maxClockError is how far in the future a file may have been written.
	maxClockError = 5 * time.Minute
)

// fileHeader says what a cache file is.
type fileHeader struct {
	// Owner is whose configuration it is: node, identity and group.
	Owner string `json:"owner"`
	// Confirmed is when a control plane last confirmed the content.
	Confirmed time.Time `json:"confirmed"`
	// Whole are the types of which the file has everything there is.
	Whole []string `json:"whole"`
}

// errDamaged is why a file is not what was written.
var errDamaged = errors.New("it is damaged")

// save writes the cache to a file with mode 0600, whole or not at all.
func (c *cache) save(path, owner string, confirmed time.Time) error {
	replies, whole := c.replies()
	header, err := json.Marshal(fileHeader{owner, confirmed.UTC(), whole})
	if err != nil {
		return fmt.Errorf("encode the header of the cache: %w", err)
	}
	err = wholefile.WriteFrom(path, func(w io.Writer) error {
		sum, out := sha256.New(), bufio.NewWriter(w)
		both := io.MultiWriter(out, sum)
		if _, err := io.WriteString(both, fileMagic); err != nil {
			return err
		}
		if err := writeBlock(both, header); err != nil {
			return err
		}
		for _, r := range replies {
			if err := writeBlock(both, r.Encode()); err != nil {
				return err
			}
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

func writeBlock(w io.Writer, b []byte) error {
	if _, err := w.Write(binary.AppendUvarint(nil, uint64(len(b)))); err != nil {
		return err
	}
	_, err := w.Write(b)
	return err
}

// load reads a cache file of that owner. Errors: fs.ErrNotExist when there is none, or why it is
// not used.
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
	c, header, err := decodeFile(raw)
	if err == nil {
		err = header.check(owner, now, maxAge)
	}
	if err != nil {
		return nil, time.Time{}, err
	}
	return c, header.Confirmed, nil
}

// decodeFile reads what save wrote. Errors: why it is something else.
func decodeFile(raw []byte) (*cache, fileHeader, error) {
	var header fileHeader
	body, ok := bytes.CutPrefix(raw, []byte(fileMagic))
	if !ok || len(body) < sha256.Size {
		return nil, header, errors.New("it is not a cache of this version of ashore-agent, or it is cut short")
	}
	body = body[:len(body)-sha256.Size]
	if sum := sha256.Sum256(raw[:len(fileMagic)+len(body)]); !bytes.HasSuffix(raw, sum[:]) {
		return nil, header, errDamaged
	}
	block, body, err := readBlock(body)
	if err != nil {
		return nil, header, err
	}
	if err := json.Unmarshal(block, &header); err != nil {
		return nil, header, fmt.Errorf("%w: %w", errDamaged, err)
	}
	c := newCache()
	for len(body) > 0 {
		if block, body, err = readBlock(body); err != nil {
			return nil, header, err
		}
		r, err := ads.ReadReply(block, limits())
		if err != nil {
			return nil, header, fmt.Errorf("%w: %w", errDamaged, err)
		}
		c.put(r, slices.Contains(header.Whole, r.TypeURL), everything)
	}
	c.changed = make(chan struct{}, 1) // it is as the file
	return c, header, nil
}

// readBlock reads what writeBlock wrote.
func readBlock(raw []byte) (block, rest []byte, err error) {
	size, n := binary.Uvarint(raw)
	if n <= 0 || size > uint64(len(raw)-n) {
		return nil, nil, errDamaged
	}
	end := n + int(size)
	return raw[n:end], raw[end:], nil
}

// check says why a file may not be used.
func (h *fileHeader) check(owner string, now time.Time, maxAge time.Duration) error {
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
