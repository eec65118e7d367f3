package bolt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/bbolt"
	"go.uber.org/goleak"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/config/configtest"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/record"
	"github.com/ashore-mesh/ashore/internal/testlog"
)

// TestMain runs the tests or, in a child process that a test has started, what its arguments name.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "child-check" {
		childEnd(Check(os.Args[2]))
	}
	if len(os.Args) == 3 && os.Args[1] == "child-write" {
		childEnd(childWrite(os.Args[2], 1<<30))
	}
	if len(os.Args) == 3 && os.Args[1] == "child-write-few" {
		childEnd(childWrite(os.Args[2], 20))
	}
	if len(os.Args) == 3 && os.Args[1] == "child-full" {
		childEnd(childFull(os.Args[2]))
	}
	if len(os.Args) == 3 && os.Args[1] == "child-trace" {
		childEnd(childTrace(os.Args[2]))
	}
	// With the race detector every child would otherwise sleep for a second at its end.
	// https://go.dev/doc/articles/race_detector#Options
	if err := os.Setenv("GORACE", strings.TrimSpace(os.Getenv("GORACE")+" atexit_sleep_ms=0")); err != nil {
		childEnd(err)
	}
	goleak.VerifyTestMain(m)
}

func childEnd(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// checked is a Config whose files are checked in a child process.
func checked(t *testing.T, dir string) Config {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Config{Dir: dir, CheckCommand: []string{self, "child-check"}, Log: testlog.New(t)}
}

// open opens the store of dir and closes it with the test.
func open(t *testing.T, cfg Config) *Store {
	t.Helper()
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

// A store that was closed opens again, and its file passes the check.
func TestReopen(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for range 3 {
		s := open(t, Config{Dir: dir})
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if err := Check(s.path); err != nil {
			t.Fatalf("check: %v", err)
		}
	}
}

// Whole revisions are forgotten, the oldest first, and what is left tells since when it is whole.
func TestForget(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, Config{Dir: dir, HistoryTotal: 5})
	apply := func(names ...string) {
		t.Helper()
		var changes []config.Change
		for _, name := range names {
			changes = append(changes, config.Change{Key: configtest.Key(name), Object: configtest.Object(name, name+".test")})
		}
		if _, err := s.Apply(t.Context(), changes, "x"); err != nil {
			t.Fatal(err)
		}
	}
	want := func(since string, revisions ...string) {
		t.Helper()
		past, err := s.History(t.Context(), config.Query{})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range past.Revisions {
			got = append(got, r.Number)
		}
		if past.Since != since || !cmp.Equal(got, revisions) {
			t.Errorf("got since %s %v, want %s %v", past.Since, got, since, revisions)
		}
	}
	apply("a", "b", "c")
	apply("a")
	apply("a")
	want("0", "3", "2", "1")
	apply("b") // one too many: all three of the first go
	want("1", "4", "3", "2")
	apply("a", "b", "c", "d", "e", "f", "g") // more than are remembered
	want("4", "5")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, Config{Dir: dir, HistoryTotal: 5})
	want("4", "5")
	apply("a")
	want("5", "6")
}

// What an older release remembered, which is what was written and not what was replaced, counts as forgotten.
func TestOldHistory(t *testing.T) {
	t.Parallel()
	s := open(t, Config{Dir: t.TempDir()})
	for _, host := range []string{"one.test", "two.test"} {
		if _, err := s.Put(t.Context(), configtest.Object("a", host), "x"); err != nil {
			t.Fatal(err)
		}
	}
	err := s.update(func(x *tx) error {
		return x.put(bucketWrites, writeID(1, 0), []byte(`{"key":{"Kind":"ServiceEntry","Namespace":"shop","Name":"a"},"who":"x","when":"2026-01-01T00:00:00Z","object":{}}`))
	})
	if err != nil {
		t.Fatal(err)
	}
	past, err := s.History(t.Context(), config.Query{Key: configtest.Key("a")})
	if err != nil || past.Since != "1" || len(past.Revisions) != 1 || past.Revisions[0].Number != "2" {
		t.Errorf("got %+v, %v; want revision 2 alone, since 1", past, err)
	}
}

// What this release cannot read is told by name, until it is written anew.
func TestUnusable(t *testing.T) {
	t.Parallel()
	dir, ctx := t.TempDir(), t.Context()
	s := open(t, Config{Dir: dir})
	if _, err := s.Put(ctx, configtest.Object("fine", "a.test"), "me"); err != nil {
		t.Fatal(err)
	}
	teapot := config.Key{Kind: "Teapot", Namespace: "shop", Name: "earl"}
	err := s.update(func(tx *tx) error {
		return errors.Join(tx.put(bucketObjects, objectKey(teapot), []byte(`{"revision":1}`)), tx.put(bucketObjects, objectKey(configtest.Key("bad")), []byte(`{"revision":1,"spec":"/w=="}`)))
	})
	if err := errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	s = open(t, checked(t, dir))
	want := []config.Key{configtest.Key("bad"), teapot}
	check := func(what string) {
		t.Helper()
		list, err := s.Unusable(ctx)
		var got []config.Key
		for _, u := range list {
			if got = append(got, u.Key); !strings.Contains(u.Why, "cannot be used by this release") {
				t.Errorf("%s: %v: %s", what, u.Key, u.Why)
			}
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: got %v, %v, want %v", what, got, err, want)
		}
	}
	check("at first")
	if _, err := s.Put(ctx, configtest.Object("bad", "b.test"), "me"); err != nil {
		t.Fatal(err)
	}
	want = want[1:]
	check("one is written anew")
}

// Saved groups are loaded by set and name after a restart, and nil removes one.
func TestGroups(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, Config{Dir: dir})
	ctx := t.Context()
	for set, content := range map[string]map[string][]byte{
		"config": {"x": []byte("1"), "y": []byte("2"), "z": {}}, "config2": {"x": []byte("3")},
	} {
		if err := s.SaveGroups(ctx, set, content); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.SaveGroups(ctx, "config", map[string][]byte{"x": nil, "y": []byte("4")}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, checked(t, dir))
	got, err := s.LoadGroups(ctx, "config")
	if diff := cmp.Diff(map[string][]byte{"y": []byte("4"), "z": {}}, got); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
}

// A second process is refused, and told who has the store.
func TestSecondProcess(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	open(t, Config{Dir: dir})
	_, err := New(Config{Dir: dir, LockTimeout: 1})
	if !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), fmt.Sprintf("process %d (", os.Getpid())) || !strings.Contains(err.Error(), dir) {
		t.Errorf("got %v, want ErrInUse that names process %d", err, os.Getpid())
	}
}

// A file with the layout of another release is refused and left as it is.
func TestOtherSchema(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, Config{Dir: dir})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, version := range []string{"3", "7"} {
		setSchema(t, s.path, version)
		before := read(t, s.path)
		for _, cfg := range []Config{{Dir: dir}, checked(t, dir), {Dir: dir}} {
			_, err := New(cfg)
			if !errors.Is(err, ErrSchema) || errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "version "+version) {
				t.Errorf("version %s: got %v, want ErrSchema", version, err)
			}
		}
		if string(read(t, s.path)) != string(before) {
			t.Errorf("version %s: the file was written to", version)
		}
	}
}

// setSchema replaces the schema version of a file.
func setSchema(t *testing.T, path, version string) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte(bucketMeta)).Put([]byte(metaSchema), []byte(version))
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A file that was not closed cleanly is not opened unchecked, and is opened when it is checked.
func TestUnclean(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, Config{Dir: dir})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := mark(s.path); err != nil {
		t.Fatal(err)
	}
	if _, err := New(Config{Dir: dir}); !errors.Is(err, ErrUnchecked) {
		t.Errorf("got %v, want ErrUnchecked", err)
	}
	_, err := New(Config{Dir: dir, CheckCommand: []string{filepath.Join(dir, "none")}})
	if err == nil || errors.Is(err, ErrDamaged) {
		t.Errorf("a check that cannot run: got %v", err)
	}
	if err := open(t, checked(t, dir)).Close(); err != nil {
		t.Fatal(err)
	}
	open(t, Config{Dir: dir})
}

// The file belongs to its user alone.
func TestMode(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, Config{Dir: dir})
	if err := errors.Join(s.Close(), os.Chmod(s.path, 0o644)); err != nil {
		t.Fatal(err)
	}
	open(t, Config{Dir: dir})
	if info, err := os.Stat(s.path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got %v, %v, want mode 0600", info.Mode(), err)
	}
}

// After Close every call says so, and the feed ends.
func TestClosed(t *testing.T) {
	t.Parallel()
	s := open(t, Config{Dir: t.TempDir()})
	done := make(chan error, 1)
	out := make(chan feed.Batch[*config.Object])
	go func() { done <- s.Run(context.Background(), out) }()
	<-out
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Errorf("run: %v", err)
	}
	_, put := s.Put(t.Context(), configtest.Object("a", "a.test"), "x")
	_, get := s.Get(t.Context(), configtest.Key("a"))
	_, history := s.History(t.Context(), config.Query{})
	commit := s.Records().Commit(t.Context(), record.Write{Key: token("a"), Value: []byte("1")})
	for what, err := range map[string]error{"put": put, "get": get, "history": history, "commit": commit} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("%s: got %v, want ErrClosed", what, err)
		}
	}
}

// What could not be read back is refused.
func TestRefusesWhatItCannotKeep(t *testing.T) {
	t.Parallel()
	s := open(t, Config{Dir: t.TempDir()})
	for what, change := range map[string]func(*config.Object){
		"no spec":      func(o *config.Object) { o.Spec = nil },
		"unknown kind": func(o *config.Object) { o.Kind = "Servce" },
		"other spec":   func(o *config.Object) { o.Kind = config.VirtualService },
		"zero byte":    func(o *config.Object) { o.Name = "a\x00b" },
		"no name":      func(o *config.Object) { o.Name = "" },
	} {
		o := configtest.Object("a", "a.test")
		change(o)
		if _, err := s.Put(t.Context(), o, "x"); err == nil {
			t.Errorf("%s: got no error", what)
		}
	}
}
