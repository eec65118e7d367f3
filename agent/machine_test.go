package agent

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The program that is named wins, then PATH; units run the packaged one. Else the error says what
// to do.
func TestProgram(t *testing.T) {
	dir := t.TempDir()
	place := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755),
			os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o755)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const version = "echo 'envoy  version: 0/1.40.0/Clean/RELEASE/BoringSSL'\n"
	named, inPath, other := place("own/e", version), place("path/envoy", version), place("own/other", "echo 1\n")
	t.Chdir(dir)
	find := func(e Envoy, want, wantErr string) {
		t.Helper()
		got, err := e.Program(t.Context())
		if got != want || (err == nil) != (wantErr == "") || err != nil && !strings.Contains(err.Error(), wantErr) {
			t.Errorf("%+v: %q, %v; want %q, %q", e, got, err, want, wantErr)
		}
	}
	t.Setenv("PATH", filepath.Dir(inPath))
	find(Envoy{Path: named}, named, "")
	find(Envoy{Path: "own/e"}, named, "")
	find(Envoy{}, inPath, "")
	find(Envoy{units: true, program: named}, named, "")
	find(Envoy{Path: other}, "", "is not Envoy")
	find(Envoy{Path: "own/none"}, "", "envoy.path: envoy is missing: there is no "+filepath.Join(dir, "own/none"))
	t.Setenv("PATH", "")
	find(Envoy{}, "", "install the package ashore-envoy, or name Envoy's program")
}
