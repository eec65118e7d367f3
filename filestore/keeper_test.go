package filestore

import (
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/config"
)

// What cannot be written is a problem until it can, or is outdated, and holds up nothing else.
func TestFlushUnencodable(t *testing.T) {
	t.Parallel()
	kept := &memory{kept: map[string][]byte{}}
	k := newKeeper(kept, "file:/x", hclog.NewNullLogger())
	k.put("a.yaml", &record{encoded: true, objects: []*config.Object{{Key: config.Key{Kind: "none", Name: "a"}}}})
	k.put("b.yaml", &record{body: []byte("# b\n")})
	for range 2 {
		if err := k.flush(t.Context()); err == nil || !strings.Contains(err.Error(), "keep a.yaml") {
			t.Errorf("got %v, want an error of a.yaml", err)
		}
	}
	if kept.kept["b.yaml"] == nil || len(kept.kept) != 1 {
		t.Errorf("kept is %q, want b.yaml alone", kept.kept)
	}
	k.put("a.yaml", &record{body: []byte("# a\n")})
	if err := k.flush(t.Context()); err != nil || kept.kept["a.yaml"] == nil {
		t.Errorf("got %v, kept %q; want a.yaml kept", err, kept.kept)
	}
}

// No kept content makes a start panic.
func FuzzRecord(f *testing.F) {
	r := record{body: []byte(entry("a", "10.0.0.1"))}
	b, err := r.marshal()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte("{}\n{}"))
	f.Fuzz(func(_ *testing.T, b []byte) {
		if r, err := parseRecord(b); err == nil {
			r.parse("x.json", "file:/x")
		}
	})
}
