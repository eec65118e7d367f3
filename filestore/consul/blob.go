package consul

import (
	"bytes"
	"compress/flate"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

const (
	// format is the version of what is written below the prefix. Any other is refused.
	format = 3
	// maxInline is how large a content may be to stand beside its line, in bytes. Consul bounds a
	// transaction to 512 KiB, in which it stands in base64 (limits.txn_max_req_len).
	maxInline = 300 << 10
	// chunkSize is how much of a larger one stands at a key, in bytes. Consul bounds a value to 512
	// KiB (limits.kv_max_value_size).
	chunkSize = 480 << 10
	// maxContent bounds a content, in bytes: one that claims more is damaged. One apply brings 64
	// MiB at most, and a snapshot has everything.
	maxContent = 1 << 30
	// maxChunks is how many chunks there may be.
	maxChunks = maxContent/chunkSize + 1
	// packFrom is the size from which contents are compressed, in bytes. Smaller ones can be read
	// in Consul as they are.
	packFrom = 1 << 10
)

// content says how the content of an entry or a snapshot is kept.
type content struct {
	// Packed says that it is compressed (DEFLATE, RFC 1951).
	Packed bool `json:"packed,omitempty"`
	// Size is how large it is when it is not, in bytes.
	Size int `json:"size"`
	// Sum is the SHA-256 of its bytes as they are kept, in hex.
	Sum string `json:"sum"`
	// Chunks is the name of the keys that it stands at, and Count how many there are. Empty: it
	// stands beside its line.
	Chunks string `json:"chunks,omitempty"`
	Count  int    `json:"count,omitempty"`
}

// pack makes what is kept of a body.
func pack(body []byte) (content, []byte, error) {
	c := content{Size: len(body)}
	if len(body) > maxContent {
		return c, nil, fmt.Errorf("%d bytes are more than the %d that can be kept", len(body), maxContent)
	}
	if len(body) >= packFrom {
		var b bytes.Buffer
		w, err := flate.NewWriter(&b, flate.BestSpeed)
		if err != nil {
			return c, nil, fmt.Errorf("compress: %w", err)
		}
		if _, err := w.Write(body); err != nil {
			return c, nil, fmt.Errorf("compress: %w", err)
		}
		if err := w.Close(); err != nil {
			return c, nil, fmt.Errorf("compress: %w", err)
		}
		body, c.Packed = b.Bytes(), true
	}
	c.Sum = sumOf(body)
	return c, body, nil
}

// check says what keeps a content from being one.
func (c content) check() error {
	switch {
	case c.Size < 0 || c.Size > maxContent:
		return fmt.Errorf("a content of %d bytes", c.Size)
	case len(c.Sum) != 2*sha256.Size:
		return errors.New("a checksum of a wrong length")
	case c.Chunks == "" && c.Count != 0 || c.Chunks != "" && (c.Count < 1 || c.Count > maxChunks):
		return fmt.Errorf("%d chunks", c.Count)
	case c.Chunks != "" && !validChunks(c.Chunks):
		return fmt.Errorf("chunks by the name %.40q", c.Chunks)
	}
	return nil
}

// unpack is the body of which raw is kept.
func (c content) unpack(raw []byte) ([]byte, error) {
	if sumOf(raw) != c.Sum {
		return nil, errors.New("its checksum is wrong")
	}
	body := raw
	if c.Packed {
		var err error
		if body, err = io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(raw)), int64(c.Size)+1)); err != nil {
			return nil, fmt.Errorf("decompress: %w", err)
		}
	}
	if len(body) != c.Size {
		return nil, fmt.Errorf("it has %d bytes, and should have %d", len(body), c.Size)
	}
	return body, nil
}

// split parts what is kept into chunks.
func split(raw []byte) [][]byte {
	var out [][]byte
	for len(raw) > chunkSize {
		out, raw = append(out, raw[:chunkSize]), raw[chunkSize:]
	}
	return append(out, raw)
}

func sumOf(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// newID is a random name: of a log, an entry.
func newID() string { return strings.ToLower(rand.Text()) }

// newChunks is a name for chunks. It says when they were made, so that those nobody refers to can
// be told from those that are just being written.
func newChunks(now time.Time) string {
	return strconv.FormatInt(now.Unix(), 16) + "-" + newID()
}

// chunksAt is when chunks of a name were made.
func chunksAt(name string) (time.Time, bool) {
	at, _, ok := strings.Cut(name, "-")
	seconds, err := strconv.ParseInt(at, 16, 64)
	return time.Unix(seconds, 0), ok && err == nil
}

// validID says whether an ID can be part of a key.
func validID(id string) bool {
	return id != "" && len(id) <= 64 && strings.IndexFunc(id,
		func(c rune) bool { return (c < 'a' || c > 'z') && (c < '0' || c > '9') }) < 0
}

func validChunks(name string) bool {
	at, id, ok := strings.Cut(name, "-")
	return ok && validID(at) && validID(id)
}
