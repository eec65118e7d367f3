package bolt

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/config/configtest"
)

// No content of any record makes reading it panic, and what was written reads back.
func FuzzContent(f *testing.F) {
	value, err := encodeObject(configtest.Object("a", "a.test"), 1)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(objectKey(configtest.Key("a")), value)
	f.Add(recordKey(token("a")), make([]byte, 20))
	f.Add([]byte("\x00\x00"), []byte(`{"spec":"////"}`))
	f.Fuzz(func(t *testing.T, key, value []byte) {
		s := &Store{objects: map[config.Key]*config.Object{}, broken: map[string]config.Problem{},
			unread: map[string]config.Key{}}
		if err := s.loadObject(key, value); err == nil && len(s.objects)+len(s.broken) != 1 {
			t.Error("a record was read as neither an object nor a problem")
		}
		for k, o := range s.objects {
			again, err := encodeObject(o, 2)
			if err != nil {
				continue // not UTF-8, say
			}
			back, err := decodeObject("x", k, again)
			if err != nil || back.Hash != o.Hash {
				t.Errorf("read back: %v, %v", back, err)
			}
		}
		if k, err := parseRecordKey(key); err == nil && len(k.Table)+len(k.Name) > len(key) {
			t.Errorf("key %q reads as %v", key, k)
		}
		if _, err := unseal(bucketObjects, key, value); err == nil {
			t.Error("any content has the right checksum")
		}
	})
}

// No content of a file makes looking at its pages panic or go on for ever.
func FuzzPages(f *testing.F) {
	dir := f.TempDir()
	s, err := New(Config{Dir: dir})
	if err != nil {
		f.Fatal(err)
	}
	if _, err := s.Put(f.Context(), configtest.Object("a", "a.test"), "x"); err != nil {
		f.Fatal(err)
	}
	if err := s.Close(); err != nil {
		f.Fatal(err)
	}
	good, err := os.ReadFile(filepath.Join(dir, FileName))
	if err != nil {
		f.Fatal(err)
	}
	const pageSize = 4096
	for id := range len(good) / pageSize {
		f.Add(good, uint64(id))
	}
	f.Fuzz(func(t *testing.T, file []byte, id uint64) {
		for _, look := range []func(*walker, uint64) error{(*walker).tree, (*walker).freelist} {
			w := &walker{file: bytes.NewReader(file), pageSize: pageSize, pages: uint64(len(file) / pageSize), seen: map[uint64]bool{}}
			if err := look(w, id); err == nil && len(w.seen) == 0 {
				t.Errorf("page %d of %d bytes is fine and was not read", id, len(file))
			}
		}
	})
}
