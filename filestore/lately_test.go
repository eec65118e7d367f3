package filestore

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
)

// mortal is a folder without a watcher that ends in the middle of things, and begins anew with what was written until then.
type mortal struct {
	edited
	kept *memory
	said feed.Batch[*config.Object] // at the start
}

func newMortal(t *testing.T, files map[string]string) *mortal {
	m := &mortal{edited{t: t}, &memory{kept: map[string][]byte{}}, feed.Batch[*config.Object]{}}
	dir := folderOf(t, files)
	m.begin(dir)
	m.pass(time.Minute, true)
	m.f.batch(false)
	return m
}

func (m *mortal) begin(dir string) {
	m.t.Helper()
	s, err := New(Config{Dir: dir})
	if err != nil {
		m.t.Fatal(err)
	}
	watch := newWatcher()
	m.t.Cleanup(watch.close)
	m.f = newFolder(s, watch, newKeeper(m.kept, s.name, s.cfg.Log))
	if err := m.f.start(m.t.Context()); err != nil {
		m.t.Fatal(err)
	}
	m.said, _ = m.f.batch(true)
}

// kill ends it: what was said is written, and nothing else.
func (m *mortal) kill() { m.killAfter(0) }

// killAfter is kill, a time after files were edited.
func (m *mortal) killAfter(d time.Duration) {
	m.t.Helper()
	m.f.keep.writer.End()
	m.f.keep.writer.Run(m.t.Context())
	if err := <-m.f.keep.writer.Status(); err != nil {
		m.t.Fatal(err)
	}
	for name, b := range m.kept.kept {
		head, body, _ := bytes.Cut(b, []byte("\n"))
		var h recordHead
		if err := json.Unmarshal(head, &h); err != nil {
			m.t.Fatal(err)
		}
		if aside(name) || h.Edited.IsZero() {
			continue
		}
		h.Edited = h.Edited.Add(-d)
		head, err := json.Marshal(h)
		if err != nil {
			m.t.Fatal(err)
		}
		m.kept.kept[name] = slices.Concat(head, []byte("\n"), body)
	}
}

// change writes a file, or deletes it where there is no text, and says so when it is seen.
func (m *mortal) change(name, text string, seen bool) {
	m.t.Helper()
	if text == "" {
		remove(m.t, m.f.src.cfg.Dir, name)
	} else {
		put(m.t, m.f.src.cfg.Dir, name, text)
	}
	if seen {
		m.f.readAll([]string{name})
		m.f.batch(false)
	}
}

// gone has the files that are missing since the start count as deleted.
func (m *mortal) gone() {
	m.pass(time.Minute, true)
	m.f.absence = absence{}
	for name := range m.f.files {
		if !m.f.there(name) {
			m.f.drop(name)
		}
	}
	m.f.batch(false)
}

// The end in the middle of a change, wherever in it: nothing that was moved with a slip is lost. What went longer before is.
func TestEndAmidChange(t *testing.T) {
	t.Parallel()
	a, b := entry("a", "10.0.0.1"), entry("b", "10.0.0.1")
	slips := map[string]string{"the same": broken("a"), "renamed": broken("c"), "no YAML": "a: [\n"}
	for what, file := range map[string]struct{ name, before, after string }{
		"deleted":                           {"x.yaml", a, ""},
		"taken out of a file":               {"w.yaml", a + b, b},
		"taken out of one that comes after": {"z.yaml", a + b, b},
	} {
		for slip, text := range slips {
			for where, c := range map[string]struct {
				slipFirst bool
				apart     time.Duration
				seen      int // how many of the two are before the end
				stays     bool
			}{
				"end, removed, slip":            {false, oneChange / 4, 0, true},
				"removed, end, slip":            {false, oneChange / 4, 1, true},
				"removed, slip, end":            {false, oneChange / 4, 2, true},
				"slip, end, removed":            {true, oneChange / 4, 1, true},
				"slip, removed, end":            {true, oneChange / 4, 2, true},
				"removed, long time, end, slip": {false, 3 * oneChange, 1, false},
				"slip, long time, end, removed": {true, 3 * oneChange, 1, slip == "the same"},
			} {
				t.Run(fmt.Sprintf("%s, %s: %s", what, slip, where), func(t *testing.T) {
					t.Parallel()
					m := newMortal(t, map[string]string{file.name: file.before, "y.yaml": another})
					steps := []func(seen bool){func(seen bool) { m.change(file.name, file.after, seen) }, func(seen bool) { m.change("y.yaml", text, seen) }}
					if c.slipFirst {
						slices.Reverse(steps)
					}
					for _, step := range steps[:c.seen] {
						step(true)
						m.pass(c.apart, true)
						m.f.batch(false)
					}
					m.killAfter(c.apart)
					for _, step := range steps[c.seen:] {
						step(false)
					}
					for range 3 { // the end may come again, in the middle of the same change
						if m.begin(m.f.src.cfg.Dir); c.stays && !slices.Contains(m.keys(), "a") {
							t.Fatalf("after a start in use are %v, want a among them", m.keys())
						}
						m.kill()
					}
					m.begin(m.f.src.cfg.Dir)
					m.gone()
					if got := slices.Contains(m.keys(), "a"); got != c.stays {
						t.Errorf("in use are %v, want a among them: %v", m.keys(), c.stays)
					}
				})
			}
		}
	}
}

// What went shortly before the end is told of at the start, as gone, with when it went: others may mean it. Once the change is over
// nothing of it is kept.
func TestEndAfterRemoval(t *testing.T) {
	t.Parallel()
	a, b := entry("a", "10.0.0.1"), entry("b", "10.0.0.1")
	m := newMortal(t, map[string]string{"x.yaml": a, "w.yaml": a2(b), "y.yaml": another})
	m.change("x.yaml", "", true)
	m.change("w.yaml", b, true)
	m.kill()
	for range 2 {
		m.begin(m.f.src.cfg.Dir)
		if got := strings.Join(m.keys(), " "); got != "b" {
			t.Errorf("in use are %s, want b", got)
		}
		was := map[string]string{}
		for _, u := range m.said.Updates {
			for _, o := range u.Was {
				if was[u.Group] += o.Name; u.Edited.IsZero() || o.Origin.Source != m.f.src.name {
					t.Errorf("%s went from %s of %s at %v", o.Name, u.Group, o.Origin.Source, u.Edited)
				}
			}
		}
		if len(was) != 2 || was["x.yaml"] != "a" || was["w.yaml"] != "d" {
			t.Errorf("it says that there were %v", was)
		}
		m.kill()
	}
	m.begin(m.f.src.cfg.Dir)
	m.pass(2*oneChange, true)
	m.f.batch(false)
	m.kill()
	for name := range m.kept.kept {
		if name != "w.yaml" && name != "y.yaml" {
			t.Errorf("%s is still kept", name)
		}
	}
	m.begin(m.f.src.cfg.Dir)
	for _, u := range m.said.Updates {
		if len(u.Was) > 0 {
			t.Errorf("it says that there were %v", u.Was)
		}
	}
}

// a2 is a text with one object more.
func a2(text string) string { return text + entry("d", "10.0.0.1") }

// What is kept of a change that is over goes from the disk by itself, though nothing else happens.
func TestChangeLapses(t *testing.T) {
	t.Parallel()
	kept := &memory{kept: map[string][]byte{}}
	dir := folderOf(t, map[string]string{"x.yaml": entry("a", "10.0.0.1"), "y.yaml": another})
	w := run(t, Config{Dir: dir, LastGood: kept})
	w.want("a=10.0.0.1")
	if err := os.Remove(filepath.Join(dir, "x.yaml")); err != nil {
		t.Fatal(err)
	}
	w.want("")
	kept.until(t, "it is kept what went", func(all map[string][]byte) bool {
		return all[goneFolder+"x.yaml"] != nil && all[latelyName] != nil && all["x.yaml"] == nil
	})
	kept.only(t)
}

// A disk without room for something large keeps nothing of a change that is over: what was taken away long before the next start does not
// come back there on account of a slip in another file.
func TestChangeLapsesWithoutRoom(t *testing.T) {
	t.Parallel()
	kept := &memory{kept: map[string][]byte{}, room: 20_000}
	dir := folderOf(t, map[string]string{"w.yaml": entry("w", "10.0.0.1"), "x.yaml": entry("a", "10.0.0.1"), "y.yaml": another})
	w := run(t, Config{Dir: dir, LastGood: kept})
	w.want("a=10.0.0.1 w=10.0.0.1")
	remove(t, dir, "x.yaml")
	w.want("w=10.0.0.1")
	kept.until(t, "it is kept what went", func(all map[string][]byte) bool { return all[goneFolder+"x.yaml"] != nil })
	put(t, dir, "big.yaml", entry("big", "10.0.0.1")+"# "+strings.Repeat("x", kept.room)+"\n")
	w.want("big=10.0.0.1 w=10.0.0.1", "no space left on device")
	kept.only(t, "w.yaml")
	w.stop()
	put(t, dir, "y.yaml", broken("a"))
	run(t, Config{Dir: dir, LastGood: kept}).want("big=10.0.0.1 w=10.0.0.1", refused, "no space left on device")
}

// What went is forgotten by itself once that is long ago, and together with the file that has adopted it, where one has: that file may not
// find room on the disk.
func TestForgottenWith(t *testing.T) {
	t.Parallel()
	for adopted, text := range map[bool]string{false: another + "# as before\n", true: broken("a")} {
		m := newMortal(t, map[string]string{"x.yaml": entry("a", "10.0.0.1"), "y.yaml": another})
		m.change("x.yaml", "", true)
		put(t, m.f.src.cfg.Dir, "y.yaml", text)
		m.f.readAll([]string{"y.yaml"})
		if got := slices.Contains(m.keys(), "a"); got != adopted {
			t.Fatalf("a is in use: %v, want %v", got, adopted)
		}
		m.pass(2*oneChange, !adopted)
		m.f.forget()
		m.f.keepLately()
		const name = goneFolder + "x.yaml"
		_, together := m.f.keep.staged[name]
		if alone := slices.Contains(m.f.keep.lapsed, name); together != adopted || alone == adopted {
			t.Errorf("adopted %v: it is forgotten with the rest: %v, by itself: %v", adopted, together, alone)
		}
		if len(m.f.adopted) > 0 {
			t.Errorf("still known as adopted: %v", m.f.adopted)
		}
	}
}

// only waits until what is kept is of these names alone: what is kept of a change goes with it.
func (m *memory) only(t *testing.T, names ...string) {
	t.Helper()
	slices.Sort(names)
	m.until(t, fmt.Sprintf("kept are %v alone", names), func(all map[string][]byte) bool { return slices.Equal(slices.Sorted(maps.Keys(all)), names) })
}

// until waits for what is kept.
func (m *memory) until(t *testing.T, what string, is func(map[string][]byte) bool) {
	t.Helper()
	for range 2000 {
		all, err := m.LoadLastGood(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		if is(all) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("waited in vain until %s; kept are %q", what, m.kept)
}
