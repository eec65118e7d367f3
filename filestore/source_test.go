package filestore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/testlog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// entry is a ServiceEntry of a name and an address.
func entry(name, address string) string {
	return fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: %s}
spec:
  hosts: [%s.test]
  ports: [{number: 80, name: http, protocol: HTTP}]
  resolution: STATIC
  endpoints: [{address: %s}]
---
`, name, name, address)
}

// broken is a ServiceEntry that is refused.
func broken(name string) string {
	return strings.Replace(entry(name, "10.0.0.9"), "resolution", "resolutoin", 1)
}

// memory is a LastGood in memory.
type memory struct {
	mu   sync.Mutex
	kept map[string][]byte
	err  error
	room int // for one content, in bytes; 0: any
}

func (m *memory) LoadLastGood(context.Context, string) (map[string][]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.kept), nil
}

func (m *memory) SaveLastGood(_ context.Context, _ string, contents map[string][]byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return m.err
	}
	for _, b := range contents {
		if m.room > 0 && len(b) > m.room {
			return errors.New("no space left on device")
		}
	}
	for name, b := range contents {
		if b == nil {
			delete(m.kept, name)
		} else {
			m.kept[name] = b
		}
	}
	return nil
}

func (m *memory) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.err = err
}

// world is a running source over a folder, and what it has said.
type world struct {
	t      *testing.T
	dir    string
	merger *feed.Merger[config.Key, *config.Object]
	out    chan feed.Batch[*config.Object]
	keys   map[config.Key]bool
	name   string
	edited map[string]time.Time // by file
	stop   func()
}

func folderOf(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "config")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		put(t, dir, name, text)
	}
	return dir
}

// put renames a file into place, as programs that mind their readers do.
func put(t *testing.T, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	temp := filepath.Join(filepath.Dir(path), "."+filepath.Base(name)+".tmp")
	if err := os.WriteFile(temp, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(temp, path); err != nil {
		t.Fatal(err)
	}
}

func run(t *testing.T, cfg Config) *world {
	t.Helper()
	w := begin(t, cfg)
	if b := w.next(); !b.Full {
		t.Fatal("the first batch is not full")
	}
	return w
}

// begin is run, and nothing was said yet. A logger of cfg is left alone.
func begin(t *testing.T, cfg Config) *world {
	t.Helper()
	if cfg.Rescan == 0 {
		cfg.Rescan = time.Hour // what is not notified is not noticed
	}
	if cfg.Log == nil {
		cfg.Log = testlog.New(t)
	}
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, dir: cfg.Dir, out: make(chan feed.Batch[*config.Object]), keys: map[config.Key]bool{}, name: s.Name(), edited: map[string]time.Time{},
		merger: feed.NewMerger([]string{s.Name()}, func(o *config.Object) config.Key { return o.Key })}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, w.out) }()
	w.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
	})
	t.Cleanup(w.stop)
	return w
}

// next takes in the next batch.
func (w *world) next() feed.Batch[*config.Object] {
	w.t.Helper()
	select {
	case b := <-w.out:
		w.apply(b)
		return b
	case <-time.After(20 * time.Second):
		w.t.Fatalf("nothing more is said; it is %v, problems %v", w.state(), w.problems())
		panic("unreachable")
	}
}

func (w *world) apply(b feed.Batch[*config.Object]) {
	for _, u := range b.Updates {
		w.edited[u.Group] = u.Edited
	}
	for _, k := range w.merger.Apply(b, time.Now()) {
		w.keys[k] = true
	}
}

// state is the address of every entry.
func (w *world) state() string {
	var out []string
	for k := range w.keys {
		for _, o := range w.merger.Items(k) {
			out = append(out, o.Name+"="+address(o))
		}
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

func (w *world) problems() []config.Problem { return w.merger.Problems(nil) }

// want waits for a state and for problems, each of which has one of the texts.
func (w *world) want(state string, texts ...string) {
	w.t.Helper()
	for w.state() != state || !match(w.problems(), texts) {
		w.next()
	}
}

func match(problems []config.Problem, texts []string) bool {
	if len(problems) != len(texts) || len(texts) == 0 {
		return len(problems) == len(texts)
	}
	for i, p := range problems { // those of several groups come in no order
		if strings.Contains(fmt.Sprintf("%s stale=%v", p, p.Stale), texts[0]) && match(slices.Delete(slices.Clone(problems), i, i+1), texts[1:]) {
			return true
		}
	}
	return false
}

func address(o *config.Object) string {
	type endpoints interface {
		GetEndpoints() []*networking.WorkloadEntry
	}
	return o.Spec.(endpoints).GetEndpoints()[0].Address
}

// Every kind of change takes effect by notification alone, and only what the file says.
func TestChanges(t *testing.T) {
	t.Parallel()
	dir := folderOf(t, map[string]string{"a.yaml": entry("a", "10.0.0.1"), "sub/b.yml": entry("b", "10.0.0.1"), ".hidden.yaml": entry("h", "10.0.0.1"),
		".git/x.yaml": entry("g", "10.0.0.1"), "notes.txt": "no"})
	w := run(t, Config{Dir: dir})
	w.want("a=10.0.0.1 b=10.0.0.1")
	put(t, dir, "a.yaml", entry("a", "10.0.0.2"))
	w.want("a=10.0.0.2 b=10.0.0.1")
	put(t, dir, "new/deep/c.json", `{"apiVersion":"networking.istio.io/v1","kind":"ServiceEntry","metadata":{"name":"c"},"spec":{"hosts":["c.test"],"ports":[{"number":80,"name":"http"}],"resolution":"STATIC","endpoints":[{"address":"10.0.0.3"}]}}`)
	w.want("a=10.0.0.2 b=10.0.0.1 c=10.0.0.3")
	if err := os.WriteFile(filepath.Join(dir, "sub/b.yml"), []byte(entry("b", "10.0.0.4")), 0o644); err != nil {
		t.Fatal(err)
	}
	w.want("a=10.0.0.2 b=10.0.0.4 c=10.0.0.3")
	if err := os.Remove(filepath.Join(dir, "sub/b.yml")); err != nil {
		t.Fatal(err)
	}
	w.want("a=10.0.0.2 c=10.0.0.3")
	if err := os.RemoveAll(filepath.Join(dir, "new")); err != nil {
		t.Fatal(err)
	}
	w.want("a=10.0.0.2")
	if err := os.Rename(filepath.Join(dir, "a.yaml"), filepath.Join(dir, "z.yaml")); err != nil {
		t.Fatal(err)
	}
	if b := w.next(); len(b.Updates) != 2 {
		t.Errorf("a renamed file came as %d updates, want both names in one batch", len(b.Updates))
	}
	w.want("a=10.0.0.2")
}

// What is wrong never removes what was right, and the rest of the file takes effect.
func TestLastGood(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text, state string
		problems    []string
	}{
		"syntax":              {"a: [", "a=10.0.0.1 b=10.0.0.1", []string{"stale=true"}},
		"one document broken": {broken("a") + entry("b", "10.0.0.2"), "a=10.0.0.1 b=10.0.0.2", []string{"stale=true"}},
		"broken and deleted":  {broken("a"), "a=10.0.0.1 b=10.0.0.1", []string{"stale=true", "ServiceEntry default/b: it was taken away while this file has an error"}},
		"a new one is broken": {entry("a", "10.0.0.1") + broken("c") + entry("b", "10.0.0.2"), "a=10.0.0.1 b=10.0.0.2", []string{"stale=false"}},
		"renamed and broken":  {broken("c") + entry("b", "10.0.0.2"), "a=10.0.0.1 b=10.0.0.2", []string{"stale=false", "ServiceEntry default/a: it was taken away while ServiceEntry default/c is refused"}},
		"no bytes":            {"", "a=10.0.0.1 b=10.0.0.1", []string{"x.yaml: the file is empty: what it defined stays at work"}},
		"white space":         {" \n\t\r\n", "a=10.0.0.1 b=10.0.0.1", []string{"the file is empty"}},
		"zeros of a crash":    {"\x00\x00\x00\n", "a=10.0.0.1 b=10.0.0.1", []string{"the file is empty"}},
		"a comment alone":     {"# nothing\n", "", nil},
		"a line alone":        {"---\n", "", nil},
		"unknown kind":        {"kind: Servce\n---\n" + entry("b", "10.0.0.2"), "a=10.0.0.1 b=10.0.0.2", []string{"stale=true"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			good := entry("a", "10.0.0.1") + entry("b", "10.0.0.1")
			dir := folderOf(t, map[string]string{"x.yaml": good, "y.yaml": "# a folder needs a file\n"})
			kept := &memory{kept: map[string][]byte{}}
			w := run(t, Config{Dir: dir, LastGood: kept})
			w.want("a=10.0.0.1 b=10.0.0.1")
			put(t, dir, "x.yaml", c.text)
			w.want(c.state, c.problems...)
			w.stop()
			again := run(t, Config{Dir: dir, LastGood: kept})
			again.want(c.state, c.problems...)
			put(t, dir, "x.yaml", good)
			again.want("a=10.0.0.1 b=10.0.0.1")
			if err := os.Remove(filepath.Join(dir, "x.yaml")); err != nil {
				t.Fatal(err)
			}
			again.want("")
			kept.only(t)
		})
	}
}

// The folder vanishes: nothing is deleted, not over a restart either, and its return is noticed.
func TestFolderVanishes(t *testing.T) {
	t.Parallel()
	dir := folderOf(t, map[string]string{"a.yaml": entry("a", "10.0.0.1"), "sub/b.yaml": entry("b", "10.0.0.1")})
	kept := &memory{kept: map[string][]byte{}}
	w := run(t, Config{Dir: dir, LastGood: kept})
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	w.want("a=10.0.0.1 b=10.0.0.1", dir+": the folder cannot be read")
	w.stop()
	if s, err := New(Config{Dir: dir, LastGood: kept}); err != nil || s.Check(t.Context()) != nil {
		t.Errorf("%v, %v; want no error: what was kept stands in", err, s.Check(t.Context()))
	}
	again := run(t, Config{Dir: dir, LastGood: kept, Return: time.Millisecond})
	again.want("a=10.0.0.1 b=10.0.0.1", "stale=true")
	away := folderOf(t, map[string]string{"a.yaml": entry("a", "10.0.0.2")})
	if err := os.Rename(away, dir); err != nil {
		t.Fatal(err)
	}
	again.want("a=10.0.0.2")
	put(t, dir, "a.yaml", entry("a", "10.0.0.3"))
	again.want("a=10.0.0.3")
}

// A folder that was never there is a wrong setting.
func TestNoFolder(t *testing.T) {
	t.Parallel()
	s, err := New(Config{Dir: filepath.Join(t.TempDir(), "none")})
	if err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{"check": s.Check(t.Context()), "run": s.Run(t.Context(), nil)} {
		if !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "none") {
			t.Errorf("%s: got %v, want an error that names the folder", what, err)
		}
	}
}

// Of two definitions the first known counts, whatever the names say, and the other takes over.
func TestClash(t *testing.T) {
	t.Parallel()
	dir := folderOf(t, map[string]string{"m.yaml": entry("a", "10.0.0.1")})
	kept := &memory{kept: map[string][]byte{}}
	w := run(t, Config{Dir: dir, LastGood: kept})
	put(t, dir, "b.yaml", entry("a", "10.0.0.2"))
	w.want("a=10.0.0.1", "b.yaml:1: ServiceEntry default/a: it is defined in m.yaml:1 too")
	w.stop()
	again := run(t, Config{Dir: dir, LastGood: kept})
	again.want("a=10.0.0.1", "m.yaml:1")
	if err := os.Remove(filepath.Join(dir, "m.yaml")); err != nil {
		t.Fatal(err)
	}
	again.want("a=10.0.0.2")
}

// Symlinks: Kubernetes' swap of ..data, a link to a file elsewhere, a circle.
func TestSymlinks(t *testing.T) {
	t.Parallel()
	dir := folderOf(t, map[string]string{"..v1/a.yaml": entry("a", "10.0.0.1"), "..v2/a.yaml": entry("a", "10.0.0.2")})
	elsewhere := folderOf(t, map[string]string{"b.yaml": entry("b", "10.0.0.1")})
	for name, to := range map[string]string{"..data": "..v1", "a.yaml": "..data/a.yaml", "b.yaml": filepath.Join(elsewhere, "b.yaml"), "circle": "."} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	w := run(t, Config{Dir: dir, FollowSymlinks: true})
	w.want("a=10.0.0.1 b=10.0.0.1", "circle")
	if err := os.Symlink("..v2", filepath.Join(dir, "..data_tmp")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")); err != nil {
		t.Fatal(err)
	}
	w.want("a=10.0.0.2 b=10.0.0.1", "circle")
	put(t, elsewhere, "b.yaml", entry("b", "10.0.0.2"))
	w.want("a=10.0.0.2 b=10.0.0.2", "circle")
}

// A file that cannot be read is tried with every scan, and told of once.
func TestUnreadableOnce(t *testing.T) {
	t.Parallel()
	dir := folderOf(t, map[string]string{"a.yaml": entry("a", "10.0.0.1")})
	if err := os.Symlink("nowhere", filepath.Join(dir, "b.yaml")); err != nil {
		t.Fatal(err)
	}
	w := run(t, Config{Dir: dir, Rescan: 5 * time.Millisecond})
	w.want("a=10.0.0.1", "b.yaml: the file cannot be read")
	select {
	case b := <-w.out:
		t.Errorf("it is told again: %v", b)
	case <-time.After(200 * time.Millisecond):
	}
	put(t, dir, "b.yaml", entry("b", "10.0.0.1"))
	w.want("a=10.0.0.1 b=10.0.0.1")
}

// A disk that takes nothing delays nothing; it is shown, and tried again.
func TestKeepingFails(t *testing.T) {
	t.Parallel()
	dir := folderOf(t, map[string]string{"a.yaml": entry("a", "10.0.0.1")})
	kept := &memory{kept: map[string][]byte{}, err: errors.New("no space left on device")}
	w := run(t, Config{Dir: dir, LastGood: kept})
	w.want("a=10.0.0.1", "no space left on device")
	put(t, dir, "a.yaml", entry("a", "10.0.0.2"))
	w.want("a=10.0.0.2", "no space left on device")
	kept.fail(nil)
	w.want("a=10.0.0.2")
	w.stop()
	if !strings.Contains(string(kept.kept["a.yaml"]), "10.0.0.2") {
		t.Errorf("kept is %q", kept.kept)
	}
}

// A file that is written in steps is read when it is whole: no state between is ever seen. That holds for
// one that is written over, and for one that editors delete and make anew.
func TestHalfWritten(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]func(path string) (*os.File, error){
		"over": os.Create,
		"anew": func(path string) (*os.File, error) {
			if err := os.Remove(path); err != nil {
				return nil, err
			}
			return os.Create(path)
		},
		"renamed while open": func(path string) (*os.File, error) {
			f, err := os.Create(filepath.Join(filepath.Dir(path), ".a.tmp"))
			if err != nil {
				return nil, err
			}
			if _, err := f.WriteString("# a comment\n"); err != nil {
				return nil, err
			}
			return f, os.Rename(f.Name(), path)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := folderOf(t, map[string]string{"a.yaml": entry("a", "10.0.0.1") + entry("b", "10.0.0.1")})
			w := run(t, Config{Dir: dir})
			f, err := begin(filepath.Join(dir, "a.yaml"))
			if err != nil {
				t.Fatal(err)
			}
			writeInSteps(t, f, entry("a", "10.0.0.2"), entry("b", "10.0.0.2"))
			w.next()
			if got := w.state(); got != "a=10.0.0.2 b=10.0.0.2" {
				t.Errorf("the first state after the edit is %q", got)
			}
		})
	}
}

func writeInSteps(t *testing.T, f *os.File, parts ...string) {
	t.Helper()
	for _, part := range parts {
		// longer than the settling: what counts is that the file is open
		time.Sleep(120 * time.Millisecond)
		if _, err := f.WriteString(part); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// Objects that did not change keep their pointer, and a change of one file reads that file alone.
func TestOnlyWhatChanged(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	reads := map[string]int{}
	dir := folderOf(t, map[string]string{"a.yaml": entry("a", "10.0.0.1") + entry("b", "10.0.0.1"), "c.yaml": entry("c", "10.0.0.1")})
	w := run(t, Config{Dir: dir, OnRead: func(r Read) { mu.Lock(); reads[r.File]++; mu.Unlock() }})
	b := config.Key{Kind: config.ServiceEntry, Namespace: "default", Name: "b"}
	before := w.merger.Items(b)[0]
	put(t, dir, "a.yaml", entry("a", "10.0.0.2")+entry("b", "10.0.0.1"))
	w.want("a=10.0.0.2 b=10.0.0.1 c=10.0.0.1")
	if w.merger.Items(b)[0] != before {
		t.Error("an object that did not change has another pointer")
	}
	put(t, dir, "a.yaml", "# one line more\n"+entry("a", "10.0.0.3")+entry("b", "10.0.0.1"))
	w.want("a=10.0.0.3 b=10.0.0.1 c=10.0.0.1")
	if moved := w.merger.Items(b)[0]; moved.Origin.Line != before.Origin.Line+1 || moved.Spec != before.Spec {
		t.Errorf("an object that moved stands at %v, want one line below %v and the same content", moved.Origin, before.Origin)
	}
	mu.Lock()
	defer mu.Unlock()
	if reads["a.yaml"] != 3 || reads["c.yaml"] != 1 {
		t.Errorf("reads are %v", reads)
	}
}
