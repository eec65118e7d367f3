package filestore

import (
	"strings"
	"testing"
)

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

// rewrite changes what was kept of a file.
func (m *memory) rewrite(t *testing.T, name string, change func(*record)) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	r, err := parseRecord(m.kept[name])
	if err != nil {
		t.Fatal(err)
	}
	change(&r)
	if m.kept[name], err = r.marshal(); err != nil {
		t.Fatal(err)
	}
}

// slip is an object with a port that there is not.
func slip(object string) string { return strings.Replace(object, "number: 80", "number: 80000", 1) }

// What was kept, and cannot be read by this release, is told for as long as it may be missed, and there for another one.
func TestKeptUnusable(t *testing.T) {
	t.Parallel()
	both := entry("a", "10.0.0.1") + "---\n" + entry("b", "10.0.0.2")
	wrong := slip(entry("a", "10.0.0.1")) + "---\n" + slip(entry("b", "10.0.0.2"))
	dir := folderOf(t, map[string]string{"w.yaml": both, "x.yaml": entry("x", "10.0.0.9")})
	kept := &memory{kept: map[string][]byte{}}
	run(t, Config{Dir: dir, LastGood: kept}).stop()
	kept.rewrite(t, "w.yaml", func(r *record) { r.body = []byte(entry("a", "10.0.0.1") + "---\n" + slip(entry("b", "10.0.0.2"))) })
	put(t, dir, "w.yaml", wrong)
	const unusable = "w.yaml: some of what was kept of its last good content cannot be used (w.yaml:"
	for range 3 {
		w := run(t, Config{Dir: dir, LastGood: kept})
		w.want("a=10.0.0.1 x=10.0.0.9", "default/a", "default/b", unusable)
		w.stop()
	}
	kept.rewrite(t, "w.yaml", func(r *record) { r.earlier[0] = []byte(strings.ReplaceAll(string(r.earlier[0]), "80000", "80")) })
	w := run(t, Config{Dir: dir, LastGood: kept})
	w.want("a=10.0.0.1 b=10.0.0.2 x=10.0.0.9", "default/a", "default/b")
	put(t, dir, "w.yaml", both)
	w.want("a=10.0.0.1 b=10.0.0.2 x=10.0.0.9")
	w.stop()
	if r := kept.kept["w.yaml"]; strings.Contains(string(r), "earlier") {
		t.Errorf("kept is still\n%s", r)
	}
}

// A record that is damaged is a problem of its file, until the file is well; it has nothing to do with what can be written.
func TestKeptDamaged(t *testing.T) {
	t.Parallel()
	dir := folderOf(t, map[string]string{"a.yaml": entry("a", "10.0.0.1"), "b.yaml": entry("b", "10.0.0.1")})
	kept := &memory{kept: map[string][]byte{}}
	run(t, Config{Dir: dir, LastGood: kept}).stop()
	kept.kept["a.yaml"] = []byte("nonsense")
	put(t, dir, "a.yaml", "nonsense: [")
	w := run(t, Config{Dir: dir, LastGood: kept})
	const damaged = "a.yaml: some of what was kept of its last good content cannot be used (a.yaml: the head of a kept record cannot be read"
	w.want("b=10.0.0.1", "a.yaml:1", damaged)
	put(t, dir, "b.yaml", entry("b", "10.0.0.2"))
	w.want("b=10.0.0.2", "a.yaml:1", damaged)
	w.stop() // all is written
	w = run(t, Config{Dir: dir, LastGood: kept})
	w.want("b=10.0.0.2", "a.yaml:1", damaged)
	put(t, dir, "a.yaml", entry("a", "10.0.0.3"))
	w.want("a=10.0.0.3 b=10.0.0.2")
	w.stop()
	run(t, Config{Dir: dir, LastGood: kept}).want("a=10.0.0.3 b=10.0.0.2")
}
