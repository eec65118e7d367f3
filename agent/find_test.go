package agent

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ashore-mesh/ashore/internal/wholefile"
)

// The program that is named wins, then PATH; else the error says what to do.
func TestFindEnvoy(t *testing.T) {
	dir := t.TempDir()
	place := func(path string, mode os.FileMode) string {
		t.Helper()
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	named, inPath, text := place("own/e", 0o755), place("path/envoy", 0o755), place("own/text", 0o644)
	t.Chdir(dir)
	find := func(path, want, wantErr string) {
		t.Helper()
		got, err := FindEnvoy(path)
		if got != want || (err == nil) != (wantErr == "") || err != nil && !strings.Contains(err.Error(), wantErr) {
			t.Errorf("FindEnvoy(%q) = %q, %v; want %q, %q", path, got, err, want, wantErr)
		}
	}
	t.Setenv("PATH", filepath.Dir(inPath))
	find(named, named, "")
	find("own/e", named, "")
	find("", inPath, "")
	find(text, "", "is not a program")
	find("own/none", "", "envoy.path: there is no program "+filepath.Join(dir, "own/none"))
	t.Setenv("PATH", "")
	find("", "", "\"make tools\" fetches .tools/envoy")
}

// Units run the packaged Envoy, whatever is in PATH: that one is checked and watched.
func TestEnvoyOfUnits(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "envoy"), []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
	e := Envoy{Unit: "ashore-envoy"}
	if got, err := e.find(); err != nil || got != PackagedEnvoy {
		t.Errorf("find() = %q, %v; want %s", got, err, PackagedEnvoy)
	}
}

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

// A file that cannot be written leaves the old one and no rests.
func TestWriteFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	for _, text := range []string{"one", "two"} {
		if err := wholefile.Write(path, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != text {
			t.Errorf("%q, %v; want %q", got, err, text)
		}
	}
	folder := filepath.Join(dir, "folder", "x")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := wholefile.Write(filepath.Dir(folder), []byte("x")); err == nil {
		t.Error("a folder was replaced by a file")
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
		t.Errorf("%v, %v: a temporary file was left", entries, err)
	}
}
