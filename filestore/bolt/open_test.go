package bolt

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/bbolt"
)

// edit changes the file of a closed store with bbolt.
func edit(f func(*bbolt.Tx) error) func(string) error {
	return func(path string) error {
		db, err := bbolt.Open(path, 0o600, nil)
		if err != nil {
			return err
		}
		return errors.Join(db.Update(f), db.Close())
	}
}

// cut truncates the file.
func cut(size int64) func(string) error {
	return func(path string) error { return os.Truncate(path, size) }
}

// overwrite zeroes the file from an offset on.
func overwrite(from int) func(string) error {
	return func(path string) error {
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		clear(b[from:])
		return os.WriteFile(path, b, 0o600)
	}
}

// A file that cannot be used is one clear error with the path, and is not changed.
func TestOpenErrors(t *testing.T) {
	t.Parallel()
	layout := func(version string) func(*bbolt.Tx) error {
		return func(tx *bbolt.Tx) error { return tx.Bucket(bucketMeta).Put(keySchema, []byte(version)) }
	}
	for name, tt := range map[string]struct {
		do   func(path string) error
		want error
		text string
	}{
		"cut off":       {cut(8192), ErrDamaged, "are lost"},
		"cut off early": {cut(5000), ErrDamaged, "are lost"},
		"not a store":   {overwrite(0), ErrDamaged, "put a backup in its place"},
		"zeroes":        {overwrite(8192), ErrDamaged, "Move the file away"},
		"other layout":  {edit(layout("4")), ErrSchema, `layout "4"`},
		"other program": {edit(func(tx *bbolt.Tx) error { return tx.DeleteBucket(bucketMeta) }), ErrSchema, `layout ""`},
		"a folder": {func(path string) error {
			return errors.Join(os.Remove(path), os.Mkdir(path, 0o700))
		}, nil, "is a directory"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t, inChild(t, t.TempDir()))
			put(t, s, "a", "b")
			if err := errors.Join(s.Close(), tt.do(s.path)); err != nil {
				t.Fatal(err)
			}
			before, _ := os.ReadFile(s.path)
			for range 2 {
				_, err := New(s.cfg)
				if err == nil || tt.want != nil && !errors.Is(err, tt.want) ||
					!strings.Contains(err.Error(), tt.text) || !strings.Contains(err.Error(), s.path) {
					t.Errorf("got %v, want %v with %q and the path", err, tt.want, tt.text)
				}
			}
			if after, _ := os.ReadFile(s.path); string(after) != string(before) {
				t.Error("the file was changed")
			}
		})
	}
}

// The file is checked after an unclean stop, and only then.
func TestUncleanStop(t *testing.T) {
	t.Parallel()
	s := open(t, inChild(t, t.TempDir()))
	put(t, s, "a")
	ran := filepath.Join(t.TempDir(), "ran")
	check := s.cfg
	check.CheckCommand = []string{"sh", "-c", "echo x >>" + ran + "; echo page 7 is lost >&2; exit 1"}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s = open(t, check); s.Close() != nil {
		t.Fatal("close")
	}
	if _, err := os.Stat(ran); err == nil {
		t.Error("the file was checked after a clean stop")
	}
	if err := os.WriteFile(filepath.Join(check.Dir, lockName), []byte(running), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 { // a failed start is no clean stop
		if _, err := New(check); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "page 7 is lost") {
			t.Errorf("after an unclean stop: got %v, want ErrDamaged", err)
		}
	}
	check.CheckCommand = []string{filepath.Join(check.Dir, "none")}
	if _, err := New(check); err == nil || errors.Is(err, ErrDamaged) {
		t.Errorf("a check that cannot run: got %v", err)
	}
	open(t, inChild(t, check.Dir))
}

// Check finds pages that are wrong.
func TestCheck(t *testing.T) {
	t.Parallel()
	s := open(t, Config{Dir: t.TempDir()})
	for i := range 50 {
		put(t, s, fmt.Sprint("o", i))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := Check(s.path); err != nil {
		t.Fatalf("a good file: %v", err)
	}
	b, err := os.ReadFile(s.path)
	if err != nil {
		t.Fatal(err)
	}
	copy(b[4*4096:5*4096], b[5*4096:6*4096])
	if err := os.WriteFile(s.path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Check(s.path); err == nil {
		t.Error("a file with a page in another place: got no error")
	}
}

// A second process is refused, with the process that uses the folder.
func TestSecondProcess(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	open(t, Config{Dir: dir})
	_, err := New(Config{Dir: dir})
	process := fmt.Sprintf("process %d", os.Getpid())
	if !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), process) || !strings.Contains(err.Error(), dir) {
		t.Errorf("got %v, want ErrInUse with process %d", err, os.Getpid())
	}
}

// The file is readable by its owner only.
func TestMode(t *testing.T) {
	t.Parallel()
	s := open(t, Config{Dir: t.TempDir()})
	if err := errors.Join(s.Close(), os.Chmod(s.path, 0o644)); err != nil {
		t.Fatal(err)
	}
	open(t, s.cfg)
	if info, err := os.Stat(s.path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got %v, %v, want mode 0600", info.Mode(), err)
	}
}
