package bolt

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/config/configtest"
	"github.com/ashore-mesh/ashore/internal/record"
)

// What is written to a file that nobody finds by its name is lost at the next start: it is refused, and who asks is told.
func TestGone(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		take, mend func(dir, path string) error
		want, todo string
	}{
		"moved": {
			take: func(_, path string) error { return os.Rename(path, path+".elsewhere") },
			mend: func(_, path string) error { return os.Rename(path+".elsewhere", path) },
			want: "moved away to", todo: `ashore.db.elsewhere `,
		},
		"another in its place": {
			take: func(_, path string) error {
				return errors.Join(os.Rename(path, path+".elsewhere"), os.WriteFile(path, []byte("another"), 0o600))
			},
			mend: func(_, path string) error { return os.Rename(path+".elsewhere", path) },
			want: "another file is in its place", todo: "start ashored again to go by that one",
		},
		"folder": {
			take: func(dir, _ string) error { return os.Rename(dir, dir+".elsewhere") },
			mend: func(dir, _ string) error { return os.Rename(dir+".elsewhere", dir) },
			want: "and its folder with it", todo: "state.elsewhere ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "state")
			s := open(t, Config{Dir: dir})
			if _, err := s.Put(t.Context(), configtest.Object("a", "a.test"), "x"); err != nil || s.Missing() != "" {
				t.Fatalf("before: %v, %q", err, s.Missing())
			}
			if err := tt.take(dir, s.path); err != nil {
				t.Fatal(err)
			}
			if got := s.Missing(); !strings.Contains(got, tt.want) || !strings.Contains(got, tt.todo) {
				t.Errorf("told is %q, want %q and %q", got, tt.want, tt.todo)
			}
			wantGone(t, s)
			if err := tt.mend(dir, s.path); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Put(t.Context(), configtest.Object("b", "b.test"), "x"); err != nil || s.Missing() != "" {
				t.Errorf("with the file back: %v, %q", err, s.Missing())
			}
		})
	}
}

// wantGone has every kind of write be refused, and reads go on.
func wantGone(t *testing.T, s *Store) {
	t.Helper()
	_, err := s.Put(t.Context(), configtest.Object("b", "b.test"), "x")
	for what, err := range map[string]error{
		"an object": err,
		"a record":  s.Records().Commit(t.Context(), record.Write{Key: record.Key{Table: "t", Name: "n"}, Value: []byte("v")}),
		"last good": s.SaveGroups(t.Context(), "x", map[string][]byte{"p": []byte("v")}),
	} {
		if !errors.Is(err, ErrGone) {
			t.Errorf("%s: got %v, want it refused", what, err)
		}
	}
	if o, err := s.Get(t.Context(), configtest.Key("a")); err != nil || o.Name != "a" {
		t.Errorf("a read: got %v, %v", o, err)
	}
}

// A file that was deleted is written down anew by the command that is told, while the process runs.
func TestDeletedIsWrittenAnew(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, Config{Dir: dir})
	if _, err := s.Put(t.Context(), configtest.Object("a", "a.test"), "x"); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(s.path); err != nil {
		t.Fatal(err)
	}
	wantGone(t, s)
	told := regexp.MustCompile(`"install -D -m 600 (\S+) (\S+)"`).FindStringSubmatch(s.Missing())
	if len(told) != 3 || told[2] != s.path {
		t.Fatalf("told is %q", s.Missing())
	}
	if err := os.WriteFile(told[2], read(t, told[1]), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	again := open(t, Config{Dir: dir})
	if o, err := again.Get(t.Context(), configtest.Key("a")); err != nil || o.Name != "a" {
		t.Errorf("after the next start: got %v, %v", o, err)
	}
}

// The log says once that the file is gone, and once that it is back.
func TestGuard(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		s := open(t, Config{Dir: t.TempDir(), Log: hclog.New(&hclog.LoggerOptions{Output: &log})})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- s.Guard(ctx) }()
		for _, to := range []string{s.path + ".elsewhere", s.path} {
			from := s.path
			if to == s.path {
				from = s.path + ".elsewhere"
			}
			if err := os.Rename(from, to); err != nil {
				t.Error(err)
			}
			time.Sleep(3 * lookEvery)
			synctest.Wait()
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if text := log.String(); strings.Count(text, "[ERROR] the file of the store is gone") != 1 || strings.Count(text, "the file of the store is back") != 1 {
			t.Errorf("logged is %s", text)
		}
	})
}
