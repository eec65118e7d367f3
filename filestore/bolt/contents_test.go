package bolt

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ashore-mesh/ashore/internal/record"
)

// All records are told, of every table, and nothing that is none.
func TestAllRecords(t *testing.T) {
	t.Parallel()
	s, err := New(Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	want := map[record.Key]string{{Table: "a", Name: "x/y"}: "1", {Table: "b", Name: "\x00"}: "", {Table: "long table", Name: "z"}: "3"}
	for k, v := range want {
		if err := s.Records().Commit(t.Context(), record.Write{Key: k, Value: []byte(v)}); err != nil {
			t.Fatal(err)
		}
	}
	list, err := s.AllRecords(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := map[record.Key]string{}
	for _, r := range list {
		got[r.Key] = string(r.Value)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
