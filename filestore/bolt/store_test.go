package bolt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/bbolt"
	"go.uber.org/goleak"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/config/configtest"
	"github.com/ashore-mesh/ashore/config/storage"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/record"
	"github.com/ashore-mesh/ashore/internal/testlog"
)

// TestMain runs the tests or, in a child process of a test, the command that its arguments name.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 {
		switch os.Args[1] {
		case "child-check":
			exit(Check(os.Args[2]))
		case "child-write":
			exit(writeForEver(os.Args[2]))
		}
	}
	goleak.VerifyTestMain(m)
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// inChild returns a Config whose files are checked in a child process.
func inChild(t *testing.T, dir string) Config {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Config{Dir: dir, CheckCommand: []string{self, "child-check"}, Log: testlog.New(t)}
}

// open opens a store until the test ends.
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

// reopen closes a store and opens its folder again.
func reopen(t *testing.T, s *Store) *Store {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return open(t, s.cfg)
}

// put writes an object of each name.
func put(t *testing.T, s *Store, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, err := configtest.Put(t.Context(), s, configtest.Object(name, name+".test"), "test"); err != nil {
			t.Fatal(err)
		}
	}
}

func TestContract(t *testing.T) {
	t.Parallel()
	configtest.TestStore(t,
		func(t *testing.T) config.Store { return open(t, Config{Dir: t.TempDir()}) },
		func(t *testing.T, s config.Store) config.Store { return reopen(t, s.(*Store)) })
}

// Objects that cannot be read are problems, and can be overwritten or deleted.
func TestUnusable(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := open(t, Config{Dir: t.TempDir()})
	put(t, s, "fine", "spec", "text")
	teapot := config.Key{Kind: "Teapot", Namespace: "shop", Name: "earl"}
	if err := s.db.Update(func(tx *bbolt.Tx) error {
		b := tx.Bucket(bucketObjects)
		return errors.Join(
			b.Put(objectKey(teapot), []byte(`{"revision":1}`)),
			b.Put(objectKey(configtest.Key("spec")), []byte(`{"revision":1,"spec":"/w=="}`)),
			b.Put(objectKey(configtest.Key("text")), []byte("\x00\x00")))
	}); err != nil {
		t.Fatal(err)
	}
	s = reopen(t, s)
	want := func(keys ...config.Key) {
		t.Helper()
		var got []config.Key
		list, err := s.Unusable(ctx)
		for _, u := range list {
			got = append(got, u.Key)
		}
		if d := cmp.Diff(keys, got); d != "" || err != nil {
			t.Errorf("unusable: %v (-want +got):\n%s", err, d)
		}
	}
	want(configtest.Key("spec"), configtest.Key("text"), teapot)
	running, cancel := context.WithCancel(ctx)
	out, ended := make(chan feed.Batch[*config.Object]), make(chan error, 1)
	go func() { ended <- s.Run(running, out) }()
	if u := (<-out).Updates; len(u) != 4 || len(u[3].Problems) != 1 || len(u[3].Invalid) != 1 {
		t.Errorf("the source sends %+v, want an object and three problems", u)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	_, err := s.Get(ctx, configtest.Key("text"))
	if err == nil || !strings.Contains(err.Error(), "apply a valid version of it") {
		t.Errorf("get: %v", err)
	}
	put(t, s, "text")
	if err := configtest.Delete(ctx, s, configtest.Key("spec"), "", "test"); err != nil {
		t.Error(err)
	}
	want(teapot)
	if _, err := s.History(ctx, config.Query{}); err != nil {
		t.Errorf("history: %v", err)
	}
}

// Saved groups are there after a restart, by set and name. Nil removes one.
func TestGroups(t *testing.T) {
	t.Parallel()
	s := open(t, Config{Dir: t.TempDir()})
	for _, save := range []struct {
		set     string
		content map[string][]byte
	}{
		{"config", map[string][]byte{"x": []byte("1"), "y": []byte("2"), "z": {}}},
		{"config2", map[string][]byte{"x": []byte("3")}},
		{"config", map[string][]byte{"x": nil, "y": []byte("4")}},
	} {
		if err := s.SaveGroups(t.Context(), save.set, save.content); err != nil {
			t.Fatal(err)
		}
	}
	got, err := reopen(t, s).LoadGroups(t.Context(), "config")
	if d := cmp.Diff(map[string][]byte{"y": []byte("4"), "z": {}}, got); d != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
}

// After Close calls return ErrClosed, and Run returns.
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
	_, put := configtest.Put(t.Context(), s, configtest.Object("a", "a.test"), "test")
	_, get := s.Get(t.Context(), configtest.Key("a"))
	_, history := s.History(t.Context(), config.Query{})
	commit := s.Records().Commit(t.Context(), record.Write{Key: token("a"), Value: []byte("1")})
	for what, err := range map[string]error{"put": put, "get": get, "history": history, "commit": commit} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("%s: got %v, want ErrClosed", what, err)
		}
	}
}

// An object that could not be read back is refused.
func TestInvalidObjects(t *testing.T) {
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
		if _, err := configtest.Put(t.Context(), s, o, "test"); err == nil {
			t.Errorf("%s: got no error", what)
		}
	}
}

// Decoding never panics, and an object that decodes can be encoded and decoded again.
func FuzzObject(f *testing.F) {
	value, err := storage.EncodeObject(configtest.Object("a", "a.test"), 1)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(objectKey(configtest.Key("a")), value)
	f.Add([]byte("\x00\x00"), []byte(`{"spec":"////"}`))
	f.Fuzz(func(t *testing.T, k, value []byte) {
		_, _ = parseRecord(token("a"), value)
		key, err := storage.ParseObjectKey(string(k))
		if err != nil {
			return
		}
		o, err := storage.DecodeObject("x", key, value)
		if err != nil {
			return
		}
		again, err := storage.EncodeObject(o, 2)
		if err != nil {
			return // not UTF-8
		}
		if back, err := storage.DecodeObject("x", key, again); err != nil || back.Hash != o.Hash {
			t.Errorf("decoded again: %v, %v", back, err)
		}
	})
}
