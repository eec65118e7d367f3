package agent

import (
	"bufio"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"slices"
	"time"
)

// readCopy verifies a whole copy of that size and then calls f for each record, whose body is valid until f returns. Errors
// say why it is not used, and then f was not called, unless it is f's own.
func readCopy(file io.ReadSeeker, size int64, owner copyOwner, key []byte, f func(copyHeader, *copyRecord) error) (copyHeader, error) {
	mac := hmac.New(sha256.New, key)
	h, at, err := readCopyStart(io.TeeReader(file, mac), size)
	if err != nil {
		return h, err
	}
	if want := at + int64(h.records) + copyTag; h.records > uint64(size) || size < want {
		return h, fmt.Errorf("it is cut short: it has %d bytes of %d", size, uint64(at)+h.records+copyTag)
	} else if size > want {
		return h, errCopyDamaged
	}
	if err := checkCopyTag(file, mac, int64(h.records)); err != nil {
		if errors.Is(err, errCopyDamaged) && h.owner != owner {
			return h, h.owner.stranger(owner)
		}
		return h, err
	}
	if h.owner != owner {
		return h, h.owner.stranger(owner)
	}
	if _, err := file.Seek(at, io.SeekStart); err != nil {
		return h, err
	}
	in, buf := bufio.NewReader(io.LimitReader(file, int64(h.records))), []byte(nil)
	for {
		raw, err := readCopyRecord(in, buf)
		buf = raw
		if errors.Is(err, io.EOF) {
			return h, nil
		}
		if err != nil {
			return h, err
		}
		r, err := decodeCopyRecord(raw)
		if err != nil {
			return h, err
		}
		if err := f(h, &r); err != nil {
			return h, err
		}
	}
}

// readCopyStart reads what stands before the records; at is how long that is.
func readCopyStart(in io.Reader, size int64) (h copyHeader, at int64, err error) {
	start := make([]byte, len(copyMagic)+8)
	if _, err := io.ReadFull(in, start); err != nil {
		return h, 0, fmt.Errorf("it is cut short: it has %d bytes", size)
	}
	format, length := binary.BigEndian.Uint32(start[len(copyMagic):]), binary.BigEndian.Uint32(start[len(copyMagic)+4:])
	switch {
	case string(start[:len(copyMagic)]) != copyMagic:
		return h, 0, errors.New("it is no copy of a configuration, or its beginning is damaged")
	case format > copyFormat:
		return h, 0, fmt.Errorf("it has the format %d of a newer ashore-agent, or is damaged; this one reads %d", format, copyFormat)
	case format != copyFormat || length > maxCopyHeader:
		return h, 0, errCopyDamaged
	}
	head := make([]byte, length)
	if _, err := io.ReadFull(in, head); err != nil {
		return h, 0, fmt.Errorf("it is cut short: it has %d bytes", size)
	}
	h, err = decodeCopyHeader(head)
	return h, int64(len(start) + len(head)), err
}

// checkCopyTag reads the records and what proves them.
func checkCopyTag(in io.Reader, mac hash.Hash, records int64) error {
	if _, err := io.CopyN(mac, in, records); err != nil {
		return fmt.Errorf("read the copy: %w", err)
	}
	tag := make([]byte, copyTag)
	if _, err := io.ReadFull(in, tag); err != nil {
		return fmt.Errorf("read the copy: %w", err)
	}
	if !hmac.Equal(tag, mac.Sum(nil)) {
		return errCopyDamaged
	}
	return nil
}

// readCopyRecord reads one record, into buf when it fits; io.EOF: there is none left.
func readCopyRecord(in *bufio.Reader, buf []byte) ([]byte, error) {
	n, err := binary.ReadUvarint(in)
	if err != nil {
		if errors.Is(err, io.EOF) {
			return nil, io.EOF
		}
		return nil, errCopyDamaged
	}
	if n > maxCopyRecord {
		return nil, errCopyDamaged
	}
	raw := slices.Grow(buf[:0], int(n))[:n]
	if _, err := io.ReadFull(in, raw); err != nil {
		return nil, errCopyDamaged
	}
	return raw, nil
}

// stranger says whose a copy is that is not want's.
func (o copyOwner) stranger(want copyOwner) error {
	switch {
	case o.machine != want.machine:
		return fmt.Errorf("it was made on another machine (machine-id %.16q, this one is %.16q), or it is damaged", o.machine, want.machine)
	case o.identity != want.identity:
		return fmt.Errorf("it is that of the identity %.200q, this workload is %q; or it is damaged", o.identity, want.identity)
	}
	return fmt.Errorf("it is that of the node %.200q, this one is %q; or it is damaged", o.node, want.node)
}

// usable says whether a copy may be used by its times.
func (h *copyHeader) usable(now time.Time, maxAge time.Duration) error {
	newest := h.saved
	if h.confirmed.After(newest) {
		newest = h.confirmed
	}
	switch age := now.Sub(h.confirmed); {
	case newest.Sub(now) > copyClock:
		return fmt.Errorf("it is from the future: it was made at %s, and this machine's clock says %s; set the clock (timedatectl, chrony)",
			newest.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	case age > maxAge:
		return fmt.Errorf("it is too old: a control plane confirmed it last at %s, %s ago, and %s is the bound", h.confirmed.UTC().Format(time.RFC3339), span(age), maxAge)
	}
	return nil
}
