package filestore

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// generation is the record that a release writes after it restored one, by which it reads some objects and not others.
func generation(t *testing.T, before record, body string, at time.Time) record {
	t.Helper()
	_, rest, _ := before.restored("x.yaml", "file:/x")
	b, err := (&record{asOf: at, body: []byte(body), earlier: rest}).marshal()
	if err != nil {
		t.Fatal(err)
	}
	out, err := parseRecord(b)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// unreadable is a file with an object that can be read and one that cannot, padded to a size.
func unreadable(fine, wrong string, size int) string {
	s := entry(fine, "10.0.0.1") + "---\n" + slip(entry(wrong, "10.0.0.2"))
	return s + "#" + strings.Repeat("x", max(0, size-len(s)-2)) + "\n"
}

// keptOn are the files, by the first object of each, that a record has kept on.
func keptOn(t *testing.T, rest [][]byte) string {
	t.Helper()
	var out []string
	for _, raw := range rest {
		r, err := parseRecord(raw)
		if err != nil {
			t.Fatal(err)
		}
		if len(r.earlier) > 0 {
			t.Errorf("there are %d records in one that is kept on", len(r.earlier))
		}
		_, name, _ := bytes.Cut(r.body, []byte("name: "))
		name, _, _ = bytes.Cut(name, []byte("\n"))
		out = append(out, string(bytes.TrimRight(name, ",} ")))
	}
	return strings.Join(out, " ")
}

// However many releases cannot read what the one before kept, what is kept on stays flat: each content once, and those that fit, the
// oldest first. All that can be read of any is there.
func TestEarlierGenerations(t *testing.T) {
	t.Parallel()
	for what, tc := range map[string]struct {
		names []string // of the contents, one for each release
		size  int
		want  string
		told  string
	}{
		"different ones": {[]string{"a", "b", "c"}, 0, "c b a", ""},
		"the same again": {[]string{"a", "a", "a", "a"}, 0, "a", ""},
		"large ones":     {[]string{"a", "b", "c", "d"}, maxEarlier/2 - 1000, "b a", "of 3 earlier contents the 2 oldest are kept on"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			var r record
			for i, name := range tc.names {
				r = generation(t, r, unreadable(name, "wrong", tc.size), time.Unix(int64(i), 0))
			}
			objects, rest, why := r.restored("x.yaml", "file:/x")
			if got := keptOn(t, rest); got != tc.want {
				t.Errorf("kept on are %s, want %s", got, tc.want)
			}
			if !strings.Contains(why, "80000") && !strings.Contains(why, "number") || !strings.Contains(why, tc.told) {
				t.Errorf("it says %q, want %q in it", why, tc.told)
			}
			var got []string
			for _, o := range objects {
				got = append(got, o.Name)
			}
			slices.Sort(got)
			want := strings.Fields(tc.want)
			if tc.told != "" {
				want = append(want, tc.names[len(tc.names)-1]) // its own can be read, and is in use
			}
			slices.Sort(want)
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("restored are %v, want %v", got, want)
			}
		})
	}
}

// What a newer release says in the head of a record stays when that is kept on.
func TestWithoutEarlier(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"{\"earlier\":[\"eA==\"],\"tomorrow\":1}\nbody\nmore":    "{\"tomorrow\":1}\nbody\nmore",
		"{\"earlier\":[\"eA==\"],\"left\":[],\"tomorrow\":1}\nb": "{\"tomorrow\":1}\nb",
		"{\"tomorrow\":1}\nbody":                                 "{\"tomorrow\":1}\nbody",
		"nonsense":                                               "nonsense",
	} {
		if got := string(withoutEarlier([]byte(raw))); got != want {
			t.Errorf("%q: got %q, want %q", raw, got, want)
		}
	}
}

// What another release kept, and this one cannot read, brings nothing back that has left the file since; what it has of objects that
// this release never saw is there for one that can read it.
func TestEarlierBringsNothingBack(t *testing.T) {
	t.Parallel()
	y, b := entry("y", "10.0.0.1"), entry("b", "10.0.0.1")
	dir := folderOf(t, map[string]string{"a.yaml": y, "b.yaml": b})
	kept := &memory{kept: map[string][]byte{}}
	run(t, Config{Dir: dir, LastGood: kept}).stop()
	kept.rewrite(t, "a.yaml", func(r *record) { r.body = []byte(y + slip(entry("u", "10.0.0.2")) + slip(entry("v", "10.0.0.2"))) })
	put(t, dir, "a.yaml", y+broken("z"))
	const refused, unusable = "ServiceEntry default/z", "some of what was kept of its last good content cannot be used"
	w := run(t, Config{Dir: dir, LastGood: kept})
	w.want("b=10.0.0.1 y=10.0.0.1", refused, unusable)
	put(t, dir, "a.yaml", y+entry("v", "10.0.0.3")+broken("z"))
	w.want("b=10.0.0.1 v=10.0.0.3 y=10.0.0.1", refused, unusable)
	put(t, dir, "b.yaml", b+entry("y", "10.0.0.9")+entry("v", "10.0.0.9"))
	for len(w.problems()) < 4 { // both are in both files
		w.next()
	}
	put(t, dir, "a.yaml", "# they are in b.yaml\n"+broken("z"))
	for range 3 {
		w.want("b=10.0.0.1 v=10.0.0.9 y=10.0.0.9", refused, unusable)
		w.stop()
		time.Sleep(oneChange) // the start is another change
		w = run(t, Config{Dir: dir, LastGood: kept})
	}
	w.stop()
	kept.rewrite(t, "a.yaml", func(r *record) { r.earlier[0] = bytes.ReplaceAll(r.earlier[0], []byte("80000"), []byte("80")) })
	w = run(t, Config{Dir: dir, LastGood: kept})
	w.want("b=10.0.0.1 u=10.0.0.2 v=10.0.0.9 y=10.0.0.9", refused, "ServiceEntry default/u: it was taken away while ServiceEntry default/z is refused")
}
