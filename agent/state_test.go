package agent

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A state folder that others can write to is not used, nor is a link in the place of its lock.
func TestStateFolderOfOthers(t *testing.T) {
	t.Parallel()
	dir := stateFolder(t)
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := lockState(dir); err == nil || !strings.Contains(err.Error(), "chmod 700") {
		t.Errorf("a folder for everybody: %v", err)
	}
	victim := filepath.Join(dir, "victim")
	if err := errors.Join(os.Chmod(dir, 0o700), os.WriteFile(victim, []byte("precious"), 0o600),
		os.Symlink(victim, filepath.Join(dir, "lock"))); err != nil {
		t.Fatal(err)
	}
	if _, err := lockState(dir); err == nil {
		t.Error("the lock is a link to a file")
	}
	if b, err := os.ReadFile(victim); err != nil || string(b) != "precious" {
		t.Errorf("that file holds %q, %v", b, err)
	}
}

// What is there already is not written again.
func TestKeepFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "f")
	inode := func(text string) os.FileInfo {
		t.Helper()
		if err := keepFile(path, []byte(text)); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if b, readErr := os.ReadFile(path); err != nil || readErr != nil || string(b) != text {
			t.Fatalf("%q, %v, %v", b, err, readErr)
		}
		return info
	}
	first := inode("one")
	if !os.SameFile(first, inode("one")) {
		t.Error("written again")
	}
	if os.SameFile(first, inode("two")) {
		t.Error("written in place")
	}
}
