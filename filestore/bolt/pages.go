package bolt

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// The layout of bbolt's pages, and of a bucket: the number of its root page and a sequence, or, when that number is 0, a
// page of its own behind them.
// Source: go.etcd.io/bbolt internal/common, page.go and bucket.go (format version 2).
const (
	pageElement  = 16 // bytes of an element of a branch, a leaf
	bucketHeader = 16

	flagBranch   = 0x01
	flagLeaf     = 0x02
	flagFreelist = 0x10
	flagBucket   = 0x01 // of a leaf's element
)

// walker looks at every page of a file without believing what it says of its own sizes. bbolt does believe it and
// reads beyond the file: what is found there differs from process to process, so that a check may find nothing and the
// next process may end.
type walker struct {
	file     io.ReaderAt
	pageSize uint64
	pages    uint64          // of the whole file
	seen     map[uint64]bool // pages
}

// page reads a page with those that it overflows into.
func (w *walker) page(id uint64) ([]byte, error) {
	if id < 2 || id >= w.pages {
		return nil, fmt.Errorf("page %d is none of its %d pages", id, w.pages)
	}
	if w.seen[id] {
		return nil, fmt.Errorf("page %d is in two places", id)
	}
	w.seen[id] = true
	head := make([]byte, pageHeader)
	if _, err := w.file.ReadAt(head, int64(id*w.pageSize)); err != nil {
		return nil, fmt.Errorf("page %d: %w", id, err)
	}
	overflow := uint64(binary.NativeEndian.Uint32(head[12:]))
	if own := binary.NativeEndian.Uint64(head); own != id || overflow >= w.pages-id {
		return nil, fmt.Errorf("page %d says that it is page %d with %d more", id, own, overflow)
	}
	p := make([]byte, (overflow+1)*w.pageSize)
	if _, err := w.file.ReadAt(p, int64(id*w.pageSize)); err != nil {
		return nil, fmt.Errorf("page %d: %w", id, err)
	}
	return p, nil
}

// tree looks at a page and all below it.
func (w *walker) tree(id uint64) error {
	p, err := w.page(id)
	if err != nil {
		return err
	}
	if err := w.elements(p); err != nil {
		return fmt.Errorf("page %d: %w", id, err)
	}
	return nil
}

// elements looks at what a branch or leaf p holds.
func (w *walker) elements(p []byte) error {
	kind := binary.NativeEndian.Uint16(p[8:])
	if kind != flagBranch && kind != flagLeaf {
		return fmt.Errorf("its kind is %#x, neither branch nor leaf", kind)
	}
	for i := range int(binary.NativeEndian.Uint16(p[10:])) {
		at := pageHeader + i*pageElement
		if at+pageElement > len(p) {
			return fmt.Errorf("element %d lies beyond its end", i)
		}
		if err := w.element(p[at:], kind == flagLeaf); err != nil {
			return fmt.Errorf("element %d: %w", i, err)
		}
	}
	return nil
}

// element looks at an element; p goes from it to the end of its page.
func (w *walker) element(p []byte, leaf bool) error {
	field := func(n int) uint64 { return uint64(binary.NativeEndian.Uint32(p[4*n:])) }
	if !leaf {
		if pos, key := field(0), field(1); pos+key > uint64(len(p)) {
			return errors.New("its key lies beyond the page's end")
		}
		return w.tree(binary.NativeEndian.Uint64(p[8:]))
	}
	flags, pos, key, value := field(0), field(1), field(2), field(3)
	if pos+key+value > uint64(len(p)) {
		return errors.New("its content lies beyond the page's end")
	}
	if flags&flagBucket == 0 {
		return nil
	}
	return w.bucket(p[pos+key:][:value])
}

// bucket looks at a bucket and what is in it.
func (w *walker) bucket(v []byte) error {
	if len(v) < bucketHeader {
		return fmt.Errorf("a bucket of %d bytes", len(v))
	}
	root, rest := binary.NativeEndian.Uint64(v), v[bucketHeader:]
	switch {
	case root != 0 && len(rest) > 0:
		return fmt.Errorf("a bucket with %d bytes too many", len(rest))
	case root != 0:
		return w.tree(root)
	case len(rest) < pageHeader:
		return fmt.Errorf("a bucket of %d bytes", len(v))
	}
	return w.elements(rest)
}

// freelist looks at the list of pages that are not in use.
func (w *walker) freelist(id uint64) error {
	p, err := w.page(id)
	if err != nil {
		return err
	}
	if kind := binary.NativeEndian.Uint16(p[8:]); kind != flagFreelist {
		return fmt.Errorf("page %d: its kind is %#x, not a list of free pages", id, kind)
	}
	room, count := uint64(len(p)-pageHeader)/8, uint64(binary.NativeEndian.Uint16(p[10:]))
	if count == 0xFFFF { // then the first entry is the number of the others
		room, count = room-1, binary.NativeEndian.Uint64(p[pageHeader:])
	}
	if count > room {
		return fmt.Errorf("page %d: %d free pages are listed where %d have room", id, count, room)
	}
	return nil
}
