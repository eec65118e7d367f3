package bolt

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"os/exec"
	"strings"
	"time"

	"go.etcd.io/bbolt"
)

// Check reads a store file and returns what is wrong with it, nil when it can be trusted. It writes
// nothing. Run it in a process of its own: a damaged file may end the process, or keep it busy for ever.
func Check(path string) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("reading it fails: %v", v)
		}
	}()
	if err := checkMetas(path); err != nil {
		return err
	}
	if err := checkBounds(path); err != nil {
		return err
	}
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true, Timeout: 5 * time.Second})
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	err = db.View(func(tx *bbolt.Tx) error {
		if err := checkPages(tx); err != nil {
			return err
		}
		return checkRecords(tx)
	})
	return errors.Join(err, db.Close())
}

// checkPages returns the first few things that bbolt finds wrong.
func checkPages(tx *bbolt.Tx) error {
	const shown = 3
	var found []error
	for err := range tx.Check() {
		if len(found) < shown {
			found = append(found, err)
		}
	}
	return errors.Join(found...)
}

// The layout of bbolt's first two pages, each of which describes the whole file; the newer one counts.
// Source: go.etcd.io/bbolt internal/common, page.go and meta.go (format version 2).
const (
	pageHeader   = 16
	metaMagic    = 0xED0CDAED
	metaVersion  = 2
	metaSummed   = 56 // bytes before the checksum
	metaPageSize = 8  // offsets of fields
	metaRoot     = 16
	metaFreelist = 32
	metaPages    = 40
	metaTx       = 48
)

// checkMetas checks what bbolt passes over: when the newer of the two pages is damaged it takes the older
// one, which is the store as it was before the last write.
func checkMetas(path string) (err error) {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	first, err := readMeta(f, 0)
	if err != nil {
		return fmt.Errorf("its first page: %w", err)
	}
	pageSize := binary.NativeEndian.Uint32(first[metaPageSize:])
	if pageSize < 1024 || pageSize > 1<<24 || pageSize&(pageSize-1) != 0 {
		return fmt.Errorf("its pages cannot have %d bytes", pageSize)
	}
	second, err := readMeta(f, int64(pageSize))
	if err != nil {
		return fmt.Errorf("its second page: %w", err)
	}
	a, b := binary.NativeEndian.Uint64(first[metaTx:]), binary.NativeEndian.Uint64(second[metaTx:])
	if a+1 != b && b+1 != a {
		return fmt.Errorf("its first two pages are of writes %d and %d, which do not follow one another", a, b)
	}
	newer := first
	if b > a {
		newer = second
	}
	pages := binary.NativeEndian.Uint64(newer[metaPages:])
	if pages > uint64(info.Size())/uint64(pageSize) {
		return fmt.Errorf("it is cut off: it has %d bytes and should have %d pages of %d", info.Size(), pages, pageSize)
	}
	return nil
}

// checkBounds makes sure that no page of a file whose metas are fine leads out of the file.
func checkBounds(path string) (err error) {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	meta, err := newerMeta(f)
	if err != nil {
		return err
	}
	w := &walker{file: f, pageSize: uint64(binary.NativeEndian.Uint32(meta[metaPageSize:])), pages: binary.NativeEndian.Uint64(meta[metaPages:]), seen: map[uint64]bool{}}
	if err := w.tree(binary.NativeEndian.Uint64(meta[metaRoot:])); err != nil {
		return err
	}
	return w.freelist(binary.NativeEndian.Uint64(meta[metaFreelist:]))
}

// newerMeta is the description that counts. Both have been checked.
func newerMeta(f *os.File) ([]byte, error) {
	first, err := readMeta(f, 0)
	if err != nil {
		return nil, err
	}
	second, err := readMeta(f, int64(binary.NativeEndian.Uint32(first[metaPageSize:])))
	if err != nil {
		return nil, err
	}
	if binary.NativeEndian.Uint64(second[metaTx:]) > binary.NativeEndian.Uint64(first[metaTx:]) {
		return second, nil
	}
	return first, nil
}

// readMeta reads the description in the page at offset.
func readMeta(f *os.File, offset int64) ([]byte, error) {
	page := make([]byte, pageHeader+metaSummed+8)
	if _, err := f.ReadAt(page, offset); err != nil {
		return nil, err
	}
	meta := page[pageHeader:]
	if binary.NativeEndian.Uint32(meta) != metaMagic {
		return nil, errors.New("this is not a bbolt file")
	}
	if v := binary.NativeEndian.Uint32(meta[4:]); v != metaVersion {
		return nil, fmt.Errorf("bbolt's format is %d, not %d", v, metaVersion)
	}
	sum := fnv.New64a()
	sum.Write(meta[:metaSummed])
	if sum.Sum64() != binary.NativeEndian.Uint64(meta[metaSummed:]) {
		return nil, errors.New("the checksum is wrong")
	}
	return meta, nil
}

// checkApart runs the check command on the file.
func (s *Store) checkApart() error {
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.CheckTimeout)
	defer cancel()
	argv := append(append([]string(nil), s.cfg.CheckCommand...), s.path)
	said := &head{limit: 8 << 10}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stderr = said
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return s.damaged(fmt.Errorf("its check did not end within %s", s.cfg.CheckTimeout))
	case errors.As(err, &exit):
		return s.damaged(errors.New(said.words(exit)))
	default:
		return fmt.Errorf("check %s by %q: %w", s.path, argv, err)
	}
}

// head keeps the start of what is written to it.
type head struct {
	bytes.Buffer
	limit int
}

func (t *head) Write(b []byte) (int, error) {
	if room := t.limit - t.Len(); room > 0 {
		t.Buffer.Write(b[:min(room, len(b))])
	}
	return len(b), nil
}

// words is what the check said, on one line, or how it ended.
func (t *head) words(exit *exec.ExitError) string {
	text := strings.TrimSpace(t.String())
	if text == "" || strings.HasPrefix(text, "unexpected fault") || strings.HasPrefix(text, "fatal error") || strings.HasPrefix(text, "panic") {
		first, _, _ := strings.Cut(text, "\n")
		return strings.TrimSpace("its check ended with " + exit.Error() + " " + first)
	}
	lines := strings.Split(text, "\n")
	return strings.Join(lines[:min(len(lines), 5)], "; ")
}
