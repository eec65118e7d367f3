package recordtest

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ashore-mesh/ashore/internal/record"
)

// Changes returns all changes since a mark, and nothing else.
func testChanges(t *testing.T, s record.Store) {
	var mark record.Mark
	want := func(what string, want ...string) {
		t.Helper()
		list, now, err := s.Changes(t.Context(), "t", mark)
		if err != nil {
			t.Fatal(err)
		}
		mark = now
		var got []string
		for _, r := range list {
			if r.Version == "" {
				got = append(got, "-"+r.Name)
				continue
			}
			if have := get(t, s, r.Key); have.Version != r.Version {
				t.Errorf("%s: %s has version %s in Changes and %s in Get", what, r.Name, r.Version, have.Version)
			}
			got = append(got, fmt.Sprintf("%s=%s", r.Name, r.Value))
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", what, d)
		}
	}
	want("nothing")
	commit(t, s, write("a", "1"), write("b", "1"), record.Write{Key: record.Key{Table: "other", Name: "c"},
		Value: []byte("1"), Version: record.Any})
	want("all", "a=1", "b=1")
	want("nothing since")
	commit(t, s, write("b", "2"), write("c", "1"))
	commit(t, s, record.Write{Key: key("a"), Version: record.Any})
	want("some", "-a", "b=2", "c=1")
	commit(t, s, write("d", "1"))
	commit(t, s, record.Write{Key: key("d"), Version: record.Any})
	list, now, err := s.Changes(t.Context(), "t", mark)
	if err != nil || len(list) > 1 || len(list) == 1 && (list[0].Name != "d" || list[0].Version != "") {
		t.Errorf("created and deleted: got %+v, %v", list, err)
	}
	mark = now
	want("nothing again")
	mark = nil
	want("all again", "b=2", "c=1")
}
