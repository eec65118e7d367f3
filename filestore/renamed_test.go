package filestore

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/config"
)

// remove deletes a file.
func remove(t *testing.T, dir, name string) {
	t.Helper()
	if err := os.Remove(filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
}

const (
	refused  = "stale=false"
	lingers  = "ServiceEntry default/a: it was taken away while"
	another  = "# a folder needs a file\n"
	oddGroup = "apiVersion: networking.istio.io/v1\nkind: WorkloadGroup\nmetadata: {name: g}\nspec: {tmplate: {}}\n---\n"
)

// One change gives an object another name and a slip, in its file or with its file: it stays, over restarts too, until
// what is refused is mended or taken out, and while nobody else defines it.
func TestRenamedAndBroken(t *testing.T) {
	t.Parallel()
	a, c := entry("a", "10.0.0.1"), entry("c", "10.0.0.1")
	for name, change := range map[string][]func(t *testing.T, dir string){
		"in its file":              {func(t *testing.T, dir string) { put(t, dir, "x.yaml", broken("c")) }},
		"to a new file, old first": {func(t *testing.T, dir string) { remove(t, dir, "x.yaml") }, func(t *testing.T, dir string) { put(t, dir, "z.yaml", broken("c")) }},
		"to a new file, new first": {func(t *testing.T, dir string) { put(t, dir, "z.yaml", broken("c")) }, func(t *testing.T, dir string) { remove(t, dir, "x.yaml") }},
		"with its file": {func(t *testing.T, dir string) {
			if err := os.Rename(filepath.Join(dir, "x.yaml"), filepath.Join(dir, "z.yaml")); err != nil {
				t.Fatal(err)
			}
			put(t, dir, "z.yaml", broken("c"))
		}},
		"to another file, old first": {func(t *testing.T, dir string) { put(t, dir, "x.yaml", another) }, func(t *testing.T, dir string) { put(t, dir, "y.yaml", another+broken("c")) }},
		"to another file, new first": {func(t *testing.T, dir string) { put(t, dir, "y.yaml", another+broken("c")) }, func(t *testing.T, dir string) { put(t, dir, "x.yaml", another) }},
	} {
		for _, stopped := range []bool{false, true} {
			t.Run(name+map[bool]string{true: " while stopped"}[stopped], func(t *testing.T) {
				t.Parallel()
				dir := folderOf(t, map[string]string{"x.yaml": a, "y.yaml": another})
				kept := &memory{kept: map[string][]byte{}}
				w := run(t, Config{Dir: dir, LastGood: kept})
				w.want("a=10.0.0.1")
				if stopped {
					w.stop()
				}
				for _, step := range change {
					step(t, dir)
				}
				for range 2 {
					if stopped {
						w = run(t, Config{Dir: dir, LastGood: kept})
					}
					w.want("a=10.0.0.1", refused, lingers)
					w.stop()
					stopped = true
				}
				w = run(t, Config{Dir: dir, LastGood: kept})
				for _, file := range []string{"x.yaml", "y.yaml", "z.yaml"} {
					if text, err := os.ReadFile(filepath.Join(dir, file)); err == nil && strings.Contains(string(text), "resolutoin") {
						put(t, dir, file, c)
					}
				}
				w.want("c=10.0.0.1")
			})
		}
	}
}

// What ends the stay of an object that may have been renamed, and what is none.
func TestRenamedAndBrokenEnds(t *testing.T) {
	t.Parallel()
	a := entry("a", "10.0.0.1")
	for name, c := range map[string]struct {
		edits    []string // of x.yaml, one after the other; "-" deletes it
		state    string
		problems []string
	}{
		"the refused one is taken out":        {[]string{broken("c"), another}, "", nil},
		"its file is deleted":                 {[]string{broken("c"), "-"}, "", nil},
		"it comes back":                       {[]string{broken("c"), a + broken("c")}, "a=10.0.0.1", []string{refused}},
		"it is removed while one is refused":  {[]string{a + broken("c"), broken("c")}, "a=10.0.0.1", []string{refused, lingers}},
		"what is refused has a good version":  {[]string{a + entry("c", "10.0.0.1"), a + broken("c"), broken("c")}, "a=10.0.0.1 c=10.0.0.1", []string{"stale=true", lingers + " this file has an error"}},
		"another kind is refused":             {[]string{oddGroup}, "a=10.0.0.1", []string{refused, lingers + " this file has an error"}},
		"the refused one takes the old name":  {[]string{broken("c"), broken("a")}, "a=10.0.0.1", []string{"ServiceEntry default/a spec.resolutoin"}},
		"then the file cannot be read at all": {[]string{broken("c"), "a: ["}, "a=10.0.0.1", []string{"not valid YAML", lingers + " a part of this file"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := folderOf(t, map[string]string{"x.yaml": a, "y.yaml": another})
			w := run(t, Config{Dir: dir})
			for _, edit := range c.edits {
				if edit == "-" {
					remove(t, dir, "x.yaml")
				} else {
					put(t, dir, "x.yaml", edit)
				}
				w.next()
			}
			w.want(c.state, c.problems...)
		})
	}
}

// Two edits far apart are two changes: a removal that is understood takes effect, and lasts, whatever is refused
// elsewhere, before it or after it. What is not sent yet is one change, however long ago it was read.
func TestRemovedBesideBroken(t *testing.T) {
	t.Parallel()
	const gone, refused, unread = 0, 18, 54 // see edit
	for name, c := range map[string]struct {
		steps [2]func(w *edited)
		stays bool // when it is one change
	}{
		"removed, then refused":         {[2]func(*edited){func(w *edited) { w.edit("0.yaml", gone) }, func(w *edited) { w.edit("1.yaml", refused) }}, true},
		"emptied, then refused":         {[2]func(*edited){func(w *edited) { w.edit("0.yaml", 3) }, func(w *edited) { w.edit("1.yaml", refused) }}, true},
		"removed, then not YAML":        {[2]func(*edited){func(w *edited) { w.edit("0.yaml", gone) }, func(w *edited) { w.edit("1.yaml", unread) }}, true},
		"refused, then removed":         {[2]func(*edited){func(w *edited) { w.edit("1.yaml", refused) }, func(w *edited) { w.edit("0.yaml", gone) }}, true},
		"not YAML, then removed":        {[2]func(*edited){func(w *edited) { w.edit("1.yaml", unread) }, func(w *edited) { w.edit("0.yaml", gone) }}, true},
		"removed, then something sound": {[2]func(*edited){func(w *edited) { w.edit("0.yaml", gone) }, func(w *edited) { w.edit("1.yaml", 3) }}, false},
	} {
		for when, one := range map[string]bool{"at once": true, "within a second": true, "later": false, "later, unsent": true} {
			t.Run(name+" "+when, func(t *testing.T) {
				t.Parallel()
				w := newEdited(t)
				w.edit("0.yaml", 1)
				w.pass(time.Minute, true)
				c.steps[0](w)
				switch when {
				case "within a second":
					w.pass(oneChange/4, true)
				case "later":
					w.pass(2*time.Second, true)
				case "later, unsent":
					w.pass(2*time.Second, false)
				}
				c.steps[1](w)
				if got := slices.Contains(w.keys(), "a"); got != (one && c.stays) {
					t.Errorf("in use are %v, want a among them: %v", w.keys(), one && c.stays)
				}
			})
		}
	}
}

// An object that was moved to another file is that file's, whatever is refused where it stood.
func TestMovedBesideBroken(t *testing.T) {
	t.Parallel()
	for name, order := range map[string][]string{"old first": {"x.yaml", "y.yaml"}, "new first": {"y.yaml", "x.yaml"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := folderOf(t, map[string]string{"x.yaml": entry("a", "10.0.0.1"), "y.yaml": another})
			kept := &memory{kept: map[string][]byte{}}
			w := run(t, Config{Dir: dir, LastGood: kept})
			for _, file := range order {
				put(t, dir, file, map[string]string{"x.yaml": broken("c"), "y.yaml": entry("a", "10.0.0.2")}[file])
			}
			w.want("a=10.0.0.2", refused)
			w.stop()
			w = run(t, Config{Dir: dir, LastGood: kept})
			w.want("a=10.0.0.2", refused)
		})
	}
}

// A refused object that should protect, and never did, says that nothing is enforced for it.
func TestNothingEnforced(t *testing.T) {
	t.Parallel()
	const policy = "apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {name: p}\nspec: {action: DENY, rules: [{}]}\n---\n"
	slip := strings.Replace(policy, "rules", "ruels", 1)
	const said = "nothing is enforced for it until it is mended"
	dir := folderOf(t, map[string]string{"x.yaml": slip, "y.yaml": another})
	w := run(t, Config{Dir: dir})
	if p := w.problems(); len(p) == 0 || !p[0].Unenforced || strings.Contains(p[0].Text, said) {
		t.Errorf("problems are %v, want one that says that nothing of this folder is enforced, and leaves it open whether something of another one is", p)
	}
	put(t, dir, "x.yaml", policy)
	w.next()
	put(t, dir, "x.yaml", slip)
	w.next()
	if p := w.problems(); len(p) == 0 || p[0].Unenforced || !strings.Contains(p[0].Text, "last good version") {
		t.Errorf("problems are %v, want that the last good version stays", p)
	}
	put(t, dir, "x.yaml", broken("c"))
	w.next()
	if p := w.problems(); slices.ContainsFunc(p, func(p config.Problem) bool { return p.Unenforced }) {
		t.Errorf("problems are %v: nothing was said to be enforced by a ServiceEntry", p)
	}
}

// What an earlier release accepted, and this one refuses as empty, stays as it was.
func TestEmptiedBefore(t *testing.T) {
	t.Parallel()
	const text = "apiVersion: security.istio.io/v1\nkind: PeerAuthentication\nmetadata: {name: p}\nspec: {selector: {}, mtls: {mode: STRICT}}\n"
	r := record{body: []byte(text)}
	b, err := r.marshal()
	if err != nil {
		t.Fatal(err)
	}
	kept := &memory{kept: map[string][]byte{"x.yaml": b}}
	dir := folderOf(t, map[string]string{"x.yaml": text})
	for range 2 {
		w := run(t, Config{Dir: dir, LastGood: kept})
		k := config.Key{Kind: config.PeerAuthentication, Namespace: "default", Name: "p"}
		if p := w.problems(); len(w.merger.Items(k)) != 1 || len(p) != 1 || !p[0].Stale {
			t.Errorf("in use are %v, with %v; want what was in use before, and a problem", w.merger.Items(k), p)
		}
		w.stop()
	}
}

// Whatever is done to files: an object is let go only by a change that is understood; and when all files are in order,
// what they define is what is in use, and no more.
func FuzzEdits(f *testing.F) {
	f.Add([]byte{0, 1, 0, 6, 0, 18, 0, 54, 0, 3})              // a, then b, c or all of it in its place and refused
	f.Add([]byte{0, 4, 1, 18, 0, 19, 1, 1, 0, 6, 2, 13, 0, 0}) // moved between files
	f.Add([]byte("renamed and broken in one edit, and again"))
	f.Fuzz(func(t *testing.T, edits []byte) {
		if len(edits) > 40 {
			return
		}
		w := newEdited(t)
		for i := 0; i+1 < len(edits); i += 2 {
			w.edit(fmt.Sprintf("%d.yaml", edits[i]%3), edits[i+1])
		}
		var want []string
		for name, c := range map[string]struct {
			code   byte
			object string
		}{"0.yaml": {1, "a"}, "1.yaml": {3, "b"}, "2.yaml": {9, "c"}} {
			if w.f.files[name] != nil {
				w.edit(name, c.code)
				want = append(want, c.object)
			}
		}
		w.f.readAll(slices.Collect(maps.Keys(w.f.pending.due)))
		slices.Sort(want)
		if got := w.keys(); !slices.Equal(got, want) {
			t.Errorf("all files are in order and define %v, and in use are %v", want, got)
		}
	})
}

// edited is a folder without a watcher.
type edited struct {
	t *testing.T
	f *folder
}

func newEdited(t *testing.T) *edited {
	s, err := New(Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	watch := newWatcher()
	t.Cleanup(watch.close)
	return &edited{t, newFolder(s, watch, newKeeper(nil, s.name, s.cfg.Log))}
}

// pass lets time pass: all that happened is so much longer ago. sent: what has changed is in force before that.
func (w *edited) pass(d time.Duration, sent bool) {
	if sent {
		w.f.batch(false)
	}
	for i := range w.f.gone {
		w.f.gone[i].at = w.f.gone[i].at.Add(-d)
	}
	for _, x := range w.f.files {
		x.edited = x.edited.Add(-d)
	}
	w.f.lately = w.f.lately.Add(-d)
	if !w.f.since.IsZero() {
		w.f.since = w.f.since.Add(-d)
	}
}

// keys are the names of what is in use.
func (w *edited) keys() []string {
	w.f.assignTombstones() // as the next batch does
	names := map[string]bool{}
	for _, x := range w.f.files {
		items, _ := w.f.owners.split(x)
		for _, o := range items {
			names[o.Name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// known says that there is a last good version of an object for a file: its own, or one that another lost lately.
func (w *edited) known(name string, k config.Key) bool {
	x := w.f.files[name]
	return x != nil && keysOf(x.objects)[k] ||
		slices.ContainsFunc(w.f.gone, func(d departed) bool { return d.from != name && d.object.Key == k })
}

// edit gives a file another content: of three objects each is there, or refused, or not there, and perhaps the
// text is not YAML; or deletes it.
func (w *edited) edit(name string, code byte) {
	w.t.Helper()
	var text strings.Builder
	understood := true
	n := int(code)
	for _, object := range []string{"a", "b", "c"} {
		switch n % 3 {
		case 1:
			text.WriteString(entry(object, "10.0.0.1"))
		case 2:
			text.WriteString(broken(object))
			understood = understood && w.known(name, config.Key{Kind: config.ServiceEntry, Namespace: "default", Name: object})
		}
		n /= 3
	}
	if n%3 == 2 {
		text.WriteString("a: [\n")
		understood = false
	}
	before := w.keys()
	path := filepath.Join(w.f.src.cfg.Dir, name)
	if text.Len() == 0 {
		if w.f.files[name] == nil {
			return
		}
		if err := os.Remove(path); err != nil {
			w.t.Fatal(err)
		}
		w.f.drop(name)
		return
	}
	if err := os.WriteFile(path, []byte(text.String()), 0o644); err != nil {
		w.t.Fatal(err)
	}
	w.f.take(w.f.src.read(name, w.f.digest(name)), false)
	after := w.keys()
	for _, k := range before {
		if !understood && !slices.Contains(after, k) {
			w.t.Fatalf("%s was in use, and a change of %s that was not understood has ended that:\n%s", k, name, &text)
		}
	}
}
