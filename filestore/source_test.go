package filestore

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/testlog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// entry is a ServiceEntry with a name and an address.
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

// invalid is a ServiceEntry with a field that does not exist.
func invalid(name string) string {
	return strings.Replace(entry(name, "10.0.0.9"), "resolution", "resolutoin", 1)
}

// folderOf makes a folder of files.
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

// put writes a file and renames it into place.
func put(t *testing.T, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, name)
	temp := filepath.Join(filepath.Dir(path), "."+filepath.Base(name)+".tmp")
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(t, os.WriteFile(temp, []byte(text), 0o644))
	must(t, os.Rename(temp, path))
}

// link puts a symlink in place, whatever is there.
func link(t *testing.T, to, path string) {
	t.Helper()
	must(t, os.Symlink(to, path+".new"))
	must(t, os.Rename(path+".new", path))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// running is a source that runs, and the latest state of its groups.
type running struct {
	t      *testing.T
	out    chan feed.Batch[*config.Object]
	groups map[string]feed.Update[*config.Object]
	down   error
	full   int
}

func start(t *testing.T, cfg Config) *running {
	t.Helper()
	cfg.Log = testlog.New(t)
	s, err := New(cfg)
	must(t, err)
	r := &running{t: t, out: make(chan feed.Batch[*config.Object]), groups: map[string]feed.Update[*config.Object]{}}
	ended := make(chan error, 1)
	ctx := t.Context()
	go func() { ended <- s.Run(ctx, r.out) }()
	t.Cleanup(func() {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return r
}

// next takes a batch.
func (r *running) next() feed.Batch[*config.Object] {
	r.t.Helper()
	select {
	case b := <-r.out:
		r.down = b.Down
		if b.Full {
			r.full++
			clear(r.groups)
		}
		for _, u := range b.Updates {
			r.groups[u.Group] = u
			if len(u.Items)+len(u.Problems)+len(u.Invalid) == 0 && !u.Unreadable {
				delete(r.groups, u.Group)
			}
		}
		return b
	case <-time.After(30 * time.Second):
		r.t.Fatalf("no batch; the state is %q", r.state())
	}
	return feed.Batch[*config.Object]{}
}

// state lists the groups: "a.yaml: a=10.0.0.1 invalid ServiceEntry b; text of a problem".
func (r *running) state() []string {
	out := []string{}
	for _, name := range slices.Sorted(maps.Keys(r.groups)) {
		u := r.groups[name]
		line := name + ":"
		for _, o := range u.Items {
			line += " " + o.Key.Name + "=" + o.Spec.(*networking.ServiceEntry).Endpoints[0].Address
		}
		for _, k := range u.Invalid {
			line += " invalid " + k
		}
		if u.Unreadable {
			line += " unreadable"
		}
		for _, p := range u.Problems {
			line += "; " + p.String()
		}
		out = append(out, line)
	}
	if r.down != nil {
		out = append(out, "down: "+r.down.Error())
	}
	return out
}

// want waits until there are these groups, each with a line that begins so.
func (r *running) want(lines ...string) {
	r.t.Helper()
	for r.full == 0 && r.down == nil || !slices.EqualFunc(r.state(), lines, strings.HasPrefix) {
		r.next()
	}
	if r.full > 1 {
		r.t.Errorf("%d full batches, want one", r.full)
	}
}

// Every kind of change is noticed at once, not by the periodic scan.
func TestChanges(t *testing.T) {
	t.Parallel()
	dir := folderOf(t, map[string]string{
		"a.yaml": entry("a", "10.0.0.1"), ".hidden.yaml": entry("h", "10.0.0.1"), "readme.txt": "text",
		"sub/b.yml": entry("b", "10.0.0.1"),
	})
	in := func(name string) string { return filepath.Join(dir, name) }
	r := start(t, Config{Dir: dir})
	r.want("a.yaml: a=10.0.0.1", "sub/b.yml: b=10.0.0.1")
	const b = "sub/b.yml: b=10.0.0.1"
	for _, step := range []struct {
		name string
		do   func() error
		want []string
	}{
		{"a file is replaced", func() error {
			put(t, dir, "a.yaml", entry("a", "10.0.0.2"))
			return nil
		}, []string{"a.yaml: a=10.0.0.2", b}},
		{"a file is written in place", func() error {
			return os.WriteFile(in("a.yaml"), []byte(entry("a", "10.0.0.3")), 0o644)
		}, []string{"a.yaml: a=10.0.0.3", b}},
		{"a folder is made", func() error {
			put(t, dir, "new/deep/c.yaml", entry("c", "10.0.0.1"))
			return nil
		}, []string{"a.yaml: a=10.0.0.3", "new/deep/c.yaml: c=10.0.0.1", b}},
		{"a file changes in a new folder", func() error {
			put(t, dir, "new/deep/c.yaml", entry("c", "10.0.0.2"))
			return nil
		}, []string{"a.yaml: a=10.0.0.3", "new/deep/c.yaml: c=10.0.0.2", b}},
		{"a folder is renamed", func() error {
			return os.Rename(in("new"), in("old"))
		}, []string{"a.yaml: a=10.0.0.3", "old/deep/c.yaml: c=10.0.0.2", b}},
		{"a folder is replaced", func() error {
			err := os.RemoveAll(in("old"))
			put(t, dir, "old/deep/c.yaml", entry("c", "10.0.0.3"))
			return err
		}, []string{"a.yaml: a=10.0.0.3", "old/deep/c.yaml: c=10.0.0.3", b}},
		{"a file changes in a replaced folder", func() error {
			put(t, dir, "old/deep/c.yaml", entry("c", "10.0.0.4"))
			return nil
		}, []string{"a.yaml: a=10.0.0.3", "old/deep/c.yaml: c=10.0.0.4", b}},
		{"a folder is removed", func() error { return os.RemoveAll(in("old")) }, []string{"a.yaml: a=10.0.0.3", b}},
		{"a file is renamed", func() error {
			return os.Rename(in("a.yaml"), in("z.yaml"))
		}, []string{b, "z.yaml: a=10.0.0.3"}},
		{"the last files are removed", func() error {
			return errors.Join(os.Remove(in("z.yaml")), os.RemoveAll(in("sub")))
		}, nil},
	} {
		before := time.Now()
		must(t, step.do())
		r.want(step.want...)
		if took := time.Since(before); took > rescanInterval-time.Second {
			t.Errorf("%s: noticed after %v", step.name, took)
		}
	}
}

func TestProblems(t *testing.T) {
	t.Parallel()
	good := entry("a", "10.0.0.1")
	tests := map[string]struct{ text, want string }{
		"an invalid object": {
			good + invalid("b"),
			"a.yaml: a=10.0.0.1 invalid ServiceEntry default/b; a.yaml:16: ServiceEntry default/b spec.resolutoin: unknown",
		},
		"only an invalid object": {
			invalid("b"), "a.yaml: invalid ServiceEntry default/b; a.yaml:7: ServiceEntry default/b",
		},
		"a syntax error":                 {"kind: [", "a.yaml: unreadable; a.yaml:1: not valid YAML"},
		"a syntax error after an object": {good + "kind: [", "a.yaml: unreadable; a.yaml:10: not valid YAML"},
		"an empty file":                  {"\n", "a.yaml: unreadable; a.yaml: the file is empty"},
		"zeros":                          {"\x00\x00", "a.yaml: unreadable; a.yaml: the file is empty"},
		"only a document without kind":   {"metadata: {name: x}\n", "a.yaml: unreadable; a.yaml:1: the kind is missing"},
		"a document without kind": {
			good + "metadata: {name: x}\n", "a.yaml: a=10.0.0.1; a.yaml:10: the kind is missing",
		},
		"an object of another API": {
			good + "{apiVersion: v1, kind: Service}\n", "a.yaml: a=10.0.0.1; a.yaml:10: kind: unknown kind",
		},
		"an object twice, the first used": {good + entry("a", "10.0.0.3"), "a.yaml: a=10.0.0.1 "},
		"both places of an object twice": {
			good + good, "a.yaml: a=10.0.0.1 invalid ServiceEntry default/a; a.yaml:10: ServiceEntry default/a: " +
				"line 1 of the same file defines it too and takes precedence: remove one of the two",
		},
	}
	for name, c := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := folderOf(t, map[string]string{"a.yaml": c.text})
			r := start(t, Config{Dir: dir})
			r.want(c.want)
			put(t, dir, "a.yaml", entry("a", "10.0.0.2"))
			r.want("a.yaml: a=10.0.0.2")
		})
	}
}

// Unchanged content is not sent again, and a batch has the time when the change was noticed.
func TestUnchanged(t *testing.T) {
	t.Parallel()
	dir := folderOf(t, map[string]string{"a.yaml": entry("a", "10.0.0.1"), "b.yaml": entry("b", "10.0.0.1")})
	r := start(t, Config{Dir: dir})
	r.want("a.yaml: a=10.0.0.1", "b.yaml: b=10.0.0.1")
	before := time.Now()
	put(t, dir, "a.yaml", entry("a", "10.0.0.1"))
	put(t, dir, "b.yaml", entry("b", "10.0.0.2"))
	b := r.next()
	if len(b.Updates) != 1 || b.Updates[0].Group != "b.yaml" || b.Since.Before(before) || b.Since.After(time.Now()) {
		t.Errorf("got %d updates since %v, want b.yaml", len(b.Updates), b.Since)
	}
}

// Files that are touched all the time are read, and do not delay others.
func TestConstantChanges(t *testing.T) {
	t.Parallel()
	dir := folderOf(t, map[string]string{"a.yaml": entry("a", "10.0.0.1"), "b.yaml": entry("b", "10.0.0.1")})
	r := start(t, Config{Dir: dir})
	r.want("a.yaml: a=10.0.0.1", "b.yaml: b=10.0.0.1")
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for tick := time.NewTicker(quiet / 4); ; {
			select {
			case <-stop:
				tick.Stop()
				return
			case now := <-tick.C:
				if err := os.Chtimes(filepath.Join(dir, "a.yaml"), now, now); err != nil {
					t.Error(err)
				}
			}
		}
	}()
	put(t, dir, "a.yaml", entry("a", "10.0.0.2"))
	put(t, dir, "b.yaml", entry("b", "10.0.0.2"))
	r.want("a.yaml: a=10.0.0.2", "b.yaml: b=10.0.0.2")
	close(stop)
	<-stopped
}

// Kubernetes swaps the content of a ConfigMap by a hidden symlink.
func TestConfigMap(t *testing.T) {
	t.Parallel()
	dir := folderOf(t, map[string]string{"..1/a.yaml": entry("a", "10.0.0.1"), "..2/a.yaml": entry("a", "10.0.0.2")})
	link(t, "..1", filepath.Join(dir, "..data"))
	link(t, "..data/a.yaml", filepath.Join(dir, "a.yaml"))
	r := start(t, Config{Dir: dir})
	r.want("a.yaml: a=10.0.0.1")
	link(t, "..2", filepath.Join(dir, "..data"))
	must(t, os.RemoveAll(filepath.Join(dir, "..1")))
	r.want("a.yaml: a=10.0.0.2")
}

// While the folder is away the source is down, and nothing is removed; a new folder in its place is
// read.
func TestFolderAway(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "config")
	s, err := New(Config{Dir: dir})
	must(t, err)
	if err := s.Check(); err == nil {
		t.Error("a folder that does not exist is not an error of Check")
	}
	r := start(t, Config{Dir: dir})
	r.want("down: the folder " + dir + " cannot be read (no such file or directory): create or mount it")
	put(t, dir, "a.yaml", entry("a", "10.0.0.1"))
	must(t, s.Check())
	r.want("a.yaml: a=10.0.0.1")
	must(t, os.Rename(dir, dir+".away"))
	r.want("a.yaml: a=10.0.0.1", "down: ")
	must(t, os.Rename(dir+".away", dir))
	r.want("a.yaml: a=10.0.0.1")
	put(t, dir, "a.yaml", entry("a", "10.0.0.2"))
	r.want("a.yaml: a=10.0.0.2")
}

// While a folder below cannot be read its files stay, also those that were read before a start: no
// batch is full.
func TestFolderBelowAway(t *testing.T) {
	t.Parallel()
	dir := folderOf(t, map[string]string{"a.yaml": entry("a", "10.0.0.1")})
	link(t, ".disk/team", filepath.Join(dir, "team"))
	const a, b, away = "a.yaml: a=10.0.0.1", "team/b.yaml: b=10.0.0.1", "team: unreadable; team: the folder cannot be read"
	r := start(t, Config{Dir: dir})
	if first := r.next(); first.Full || !slices.EqualFunc(r.state(), []string{a, away}, strings.HasPrefix) {
		t.Errorf("got %q, full: %v", r.state(), first.Full)
	}
	put(t, dir, ".disk/team/b.yaml", entry("b", "10.0.0.1"))
	r.want(a, b)
	must(t, os.Rename(filepath.Join(dir, ".disk"), filepath.Join(dir, ".away")))
	r.want(a, away, b)
	must(t, os.Rename(filepath.Join(dir, ".away"), filepath.Join(dir, ".disk")))
	r.want(a, b)
}

// A file that is deleted after the folder was listed is no problem.
func TestDeletedBeforeItIsRead(t *testing.T) {
	t.Parallel()
	dir := folderOf(t, map[string]string{"a.yaml": entry("a", "10.0.0.1"), "b.yaml": entry("b", "10.0.0.2")})
	link(t, "nowhere", filepath.Join(dir, "c.yaml"))
	s, err := New(Config{Dir: dir})
	must(t, err)
	f, l := newFolder(s, nil, nil), s.scan()
	must(t, os.Remove(filepath.Join(dir, "b.yaml")))
	updates, _ := f.readFiles(l)
	if len(updates) != 2 || updates[0].Group != "a.yaml" || updates[1].Group != "c.yaml" || !updates[1].Unreadable {
		t.Errorf("got %+v, want a.yaml and c.yaml, a link that leads nowhere", updates)
	}
}

// Mounts are found although the kernel does not report them.
func TestMount(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root can mount a file system")
	}
	dir := folderOf(t, map[string]string{"a.yaml": entry("a", "10.0.0.1")})
	r := start(t, Config{Dir: dir})
	r.want("a.yaml: a=10.0.0.1")
	must(t, unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"))
	t.Cleanup(func() { must(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	r.want()
	put(t, dir, "a.yaml", entry("a", "10.0.0.2"))
	r.want("a.yaml: a=10.0.0.2")
}

// Many files are read with progress, and removed in one batch.
func TestManyFiles(t *testing.T) {
	t.Parallel()
	const many = 5 * progressEvery
	files := map[string]string{"a.yaml": entry("a", "10.0.0.1")}
	for i := range many {
		files[fmt.Sprintf("stray/%d.json", i)] = `{"answer": 42}`
	}
	dir := folderOf(t, files)
	r := start(t, Config{Dir: dir})
	if b := r.next(); b.Reading != many+1 || b.Full || len(b.Updates) > 0 {
		t.Errorf("got %+v, want that %d files are being read", b, many+1)
	}
	for r.full == 0 {
		r.next()
	}
	put(t, dir, "a.yaml", entry("a", "10.0.0.2"))
	if b := r.next(); len(b.Updates) != 1 || r.groups["a.yaml"].Items == nil {
		t.Errorf("got %d updates, want a.yaml", len(b.Updates))
	}
	must(t, os.Rename(filepath.Join(dir, "stray"), filepath.Join(t.TempDir(), "stray")))
	if b := r.next(); len(b.Updates) != many {
		t.Errorf("got %d updates, want that %d files are gone", len(b.Updates), many)
	}
}

func TestTooManyEntries(t *testing.T) {
	t.Parallel()
	dir := folderOf(t, map[string]string{"a.yaml": entry("a", "10.0.0.1")})
	r := start(t, Config{Dir: dir, maxEntries: 5})
	r.want("a.yaml: a=10.0.0.1")
	for i := range 5 {
		put(t, dir, fmt.Sprintf("%d.txt", i), "")
	}
	r.want("a.yaml: a=10.0.0.1", "down: the folder "+dir+" is not read: it has more than 5 files and folders")
	must(t, os.Remove(filepath.Join(dir, "0.txt")))
	r.want("a.yaml: a=10.0.0.1")
}

func TestDepth(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("d/", maxFolders)
	dir := folderOf(t, map[string]string{
		"a.yaml": entry("a", "10.0.0.1"), deep + "b.yaml": entry("b", "10.0.0.1"), deep + "d/c.yaml": entry("c", "10.0.0.1"),
	})
	r := start(t, Config{Dir: dir})
	r.want("a.yaml: a=10.0.0.1", deep+"b.yaml: b=10.0.0.1",
		deep+"d: unreadable; "+deep+"d: the folder is not read: it is nested in more than 32 folders")
}

// A change of a listed file is read without a scan of the folder; any other change, and one that may
// be more, is followed by a scan.
func TestReadWithoutScan(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put := func(name, host string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		text := "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: " + strings.TrimSuffix(name, ".yaml") +
			", namespace: shop}\nspec: {hosts: [" + host + "], http: [{route: [{destination: {host: x}}]}]}\n"
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		old := time.Now().Add(-time.Hour) // a file that changed a moment ago is read again
		if err := os.Chtimes(path, old, old); err != nil {
			t.Fatal(err)
		}
		return path
	}
	s, err := New(Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	w := newWatcher()
	defer w.close()
	var groups []string
	f := newFolder(s, w, func(b feed.Batch[*config.Object]) bool {
		for _, u := range b.Updates {
			groups = append(groups, u.Group)
		}
		return true
	})
	read := func(want string, changed ...string) {
		t.Helper()
		paths := map[string]bool{}
		for _, path := range changed {
			paths[path] = true
		}
		groups = nil
		f.read(time.Time{}, paths)
		if got := strings.Join(groups, " "); got != want {
			t.Errorf("it read %q, want %q", got, want)
		}
	}
	a, hiddenFile := put("a.yaml", "one"), filepath.Join(dir, ".a.yaml.tmp")
	read("a.yaml", a)
	put("a.yaml", "other")
	b := put("b.yaml", "one")
	read("a.yaml", a, hiddenFile)
	read("b.yaml", b)
	put("a.yaml", "third")
	if err := os.Remove(b); err != nil {
		t.Fatal(err)
	}
	read("a.yaml", a)
	read("b.yaml", b)
	put("b.yaml", "one")
	if err := os.Symlink("b.yaml", filepath.Join(dir, "c.yaml")); err != nil {
		t.Fatal(err)
	}
	read("b.yaml c.yaml", b)
	put("d.yaml", "one")
	read("d.yaml", filepath.Join(dir, "..data")) // symlinks may lead through it
	f.scanned = time.Time{}
	put("e.yaml", "one")
	read("e.yaml", a)
}

// Limits of the kernel are a problem of the source and a warning, once. The problem ends with the
// limit.
func TestKernelLimits(t *testing.T) {
	t.Parallel()
	dir := folderOf(t, map[string]string{"a.yaml": entry("a", "10.0.0.1")})
	log := &bytes.Buffer{}
	s, err := New(Config{Dir: dir, Log: hclog.New(&hclog.LoggerOptions{Output: log})})
	if err != nil {
		t.Fatal(err)
	}
	full, noInstance := newWatcher(), &watcher{err: limitError("fs.inotify.max_user_instances", syscall.EMFILE)}
	defer full.close()
	full.add = func(string) error { return syscall.ENOSPC }
	for _, tc := range []struct {
		w      *watcher
		sysctl string
	}{{full, "fs.inotify.max_user_watches"}, {noInstance, "fs.inotify.max_user_instances"}} {
		log.Reset()
		texts := map[string]string{}
		f := newFolder(s, tc.w, func(b feed.Batch[*config.Object]) bool {
			for _, u := range b.Updates {
				texts[u.Group] = ""
				for _, p := range u.Problems {
					texts[u.Group] += p.String()
				}
			}
			return true
		})
		f.read(time.Time{}, nil)
		f.read(time.Time{}, nil)
		if got := texts["."]; !strings.Contains(got, tc.sysctl) || strings.Contains(texts["a.yaml"], tc.sysctl) {
			t.Errorf("problems are %q, want one with %s", texts, tc.sysctl)
		}
		if got := log.String(); strings.Count(got, "[WARN]") != 1 || !strings.Contains(got, tc.sysctl) {
			t.Errorf("the log is %q, want one warning with %s", got, tc.sysctl)
		}
		if tc.w == full {
			full.add = full.w.Add
			if f.read(time.Time{}, nil); texts["."] != "" {
				t.Errorf("with higher limits there is still the problem %q", texts["."])
			}
		}
	}
}
