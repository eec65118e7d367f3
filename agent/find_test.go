package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The program that is named wins, then PATH, then what "make tools" fetched; else the error says what to do.
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
	find("", "", "\"make tools\" in Ashore's work tree fetches one")
	tool := place(".tools/envoy", 0o755)
	if err := os.MkdirAll("a/b", 0o755); err != nil {
		t.Fatal(err)
	}
	t.Chdir("a/b")
	find("", tool, "")
}

// A file that cannot be written leaves the old one and no rests.
func TestWriteFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	for _, text := range []string{"one", "two"} {
		if err := writeFile(path, []byte(text)); err != nil {
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
	if err := writeFile(filepath.Dir(folder), []byte("x")); err == nil {
		t.Error("a folder was replaced by a file")
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
		t.Errorf("%v, %v: a temporary file was left", entries, err)
	}
}
