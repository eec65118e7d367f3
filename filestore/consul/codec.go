package consul

import (
	"bytes"
	"compress/flate"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/ashore-mesh/ashore/internal/record"
)

const (
	// format is the version of what is stored in Consul. Any other is refused.
	format = 5
	// maxInline is the largest body of an entry that is stored in the entry. Consul bounds a
	// transaction to 512 KiB, in which values are in base64 (limits.txn_max_req_len).
	maxInline = 300 << 10
	// partSize is the size of the parts of a larger body. Consul bounds a value to 512 KiB
	// (limits.kv_max_value_size).
	partSize = 480 << 10
	// maxBody bounds a body before compression. The largest is a snapshot.
	maxBody = 1 << 30
	// packFrom is the size from which bodies are compressed. Smaller ones stay readable in Consul.
	packFrom = 1 << 10
)

// head is the value of the key head. The zero value is an empty log.
type head struct {
	Format int `json:"format"`
	// Log is the random ID of the log.
	Log string `json:"log"`
	// Revision is the number of the newest entry, and ID its random ID.
	Revision uint64 `json:"revision"`
	ID       string `json:"id"`
	// Bytes is the size of the entries since the snapshot.
	Bytes int `json:"bytes"`
	// Snapshot is the latest; nil: all entries are there.
	Snapshot *snapshotRef `json:"snapshot,omitempty"`
}

// snapshotRef refers to a snapshot of the state at an entry.
type snapshotRef struct {
	Revision uint64 `json:"revision"`
	ID       string `json:"id"`
	content
}

// entry is the first line of an entry. The body follows it, unless it is in a blob.
type entry struct {
	Format   int    `json:"format"`
	Revision uint64 `json:"revision"`
	ID       string `json:"id"`
	// Previous is the ID of the entry before.
	Previous string `json:"previous,omitempty"`
	// By is the replica that wrote it, and At the time by its clock; both for operators.
	By string    `json:"by"`
	At time.Time `json:"at"`
	content
}

// content describes a body: a list of items, encoded.
type content struct {
	Size int    `json:"size"` // before compression
	Sum  string `json:"sum"`  // the SHA-256 of what is stored, in hex
	// Packed means that it is compressed (DEFLATE, RFC 1951).
	Packed bool `json:"packed,omitempty"`
	// Blob is the folder of its parts, and Parts their number. Empty: the body follows its entry.
	Blob  string `json:"blob,omitempty"`
	Parts int    `json:"parts,omitempty"`
}

// item is one record in an entry, in a snapshot or in the copy of a replica.
type item struct {
	Table string `json:"table"`
	Name  string `json:"name"`
	// Version is empty in entries: there it is the ID of the entry.
	Version string `json:"version,omitempty"`
	// Value is null for a record that an entry deletes.
	Value []byte `json:"value"`
}

func (i item) key() record.Key { return record.Key{Table: i.Table, Name: i.Name} }

// errFormat means that another release wrote a key.
var errFormat = errors.New("another release of Ashore wrote it: run the same release on all replicas")

func parseHead(b []byte) (h head, err error) {
	if err = json.Unmarshal(b, &h); err == nil {
		err = checkFormat(h.Format)
	}
	if err == nil && (h.Log == "" || h.ID == "" || h.Revision == 0 || h.snapshotRevision() > h.Revision) {
		err = errors.New("it is not the head of a log")
	}
	return h, err
}

func checkFormat(found int) error {
	if found == format {
		return nil
	}
	return fmt.Errorf("it has format %d, and this release reads format %d: %w", found, format, errFormat)
}

// snapshotRevision is the revision of the snapshot, 0 without one.
func (h head) snapshotRevision() uint64 {
	if h.Snapshot == nil {
		return 0
	}
	return h.Snapshot.Revision
}

// parseEntry returns the first line of an entry and what follows it.
func parseEntry(b []byte) (e entry, body []byte, err error) {
	line, body, _ := bytes.Cut(b, []byte("\n"))
	if err = json.Unmarshal(line, &e); err == nil {
		err = checkFormat(e.Format)
	}
	return e, body, err
}

// encodeItems encodes a body.
func encodeItems(items []item) (content, []byte, error) {
	body, err := json.Marshal(items)
	if err != nil {
		return content{}, nil, fmt.Errorf("encode records: %w", err)
	}
	c := content{Size: len(body)}
	if len(body) > maxBody {
		return c, nil, fmt.Errorf("%d bytes are more than the %d that can be stored", len(body), maxBody)
	}
	if len(body) >= packFrom {
		if body, err = deflate(body); err != nil {
			return c, nil, fmt.Errorf("compress: %w", err)
		}
		c.Packed = true
	}
	c.Sum = sumOf(body)
	return c, body, nil
}

// decodeItems decodes what encodeItems returned.
func (c content) decodeItems(body []byte) (items []item, err error) {
	if sumOf(body) != c.Sum {
		return nil, errors.New("its checksum is wrong")
	}
	if c.Packed {
		r := io.LimitReader(flate.NewReader(bytes.NewReader(body)), int64(min(c.Size, maxBody)))
		if body, err = io.ReadAll(r); err != nil {
			return nil, fmt.Errorf("decompress: %w", err)
		}
	}
	if err := json.Unmarshal(body, &items); err != nil {
		return nil, err
	}
	for _, i := range items {
		if i.Table == "" || i.Name == "" {
			return nil, fmt.Errorf("record %q %q has no table or no name", i.Table, i.Name)
		}
	}
	return items, nil
}

func deflate(b []byte) ([]byte, error) {
	var out bytes.Buffer
	w, err := flate.NewWriter(&out, flate.BestSpeed)
	if err == nil {
		_, err = w.Write(b)
	}
	if err == nil {
		err = w.Close()
	}
	return out.Bytes(), err
}

func sumOf(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// newID returns a random ID of a log, an entry or a snapshot.
func newID() string { return strings.ToLower(rand.Text()) }

// encodeLine encodes a head or the first line of an entry.
func encodeLine(v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	return append(b, '\n'), nil
}
