package shared

import (
	"bytes"
	"testing"

	"github.com/ashore-mesh/ashore/internal/record"
	"github.com/ashore-mesh/ashore/registry/runtimetest"
)

// Whatever stands in a record, it is refused or read as what can be written again.
func FuzzDecode(f *testing.F) {
	good := runtimetest.Web("session")
	value, err := encode("owner", &good)
	if err != nil {
		f.Fatal(err)
	}
	key := entryKey(good.RegistrationKey)
	for _, seed := range [][]byte{value, {}, []byte("null"), []byte(`{"v":1}`), bytes.Replace(value, []byte("10.0.0.1"), []byte("nowhere"), 1)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		_, _ = decodeSign(value)
		r, owner, err := decode(record.Record{Key: key, Value: value, Version: "1"})
		if err != nil {
			return
		}
		again, err := encode(owner, r)
		if err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		if _, _, err := decode(record.Record{Key: key, Value: again, Version: "1"}); err != nil {
			t.Fatalf("what was written cannot be read: %v", err)
		}
	})
}
