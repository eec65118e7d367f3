package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// editor makes $EDITOR a script that replaces a word of the text.
func editor(t *testing.T, from, to string) {
	t.Helper()
	t.Setenv("VISUAL", "")
	t.Setenv("EDITOR", "sed -i 's/"+from+"/"+to+"/'")
}

// What the editor leaves is written, at the revision that was read. A refused text is kept.
func TestEdit(t *testing.T) {
	socket := serve(t, &fake{})
	t.Setenv("TMPDIR", t.TempDir())
	editor(t, "web", "www")
	code, out, errOut := result(t, "--socket", socket, "edit", "vs", "shop/web")
	if code != 0 || !strings.Contains(out, "revision 41: 1 changed") {
		t.Errorf("exit code %d, %s%s", code, out, errOut)
	}
	editor(t, "nothing", "x")
	if code, out, _ := result(t, "--socket", socket, "edit", "vs", "web", "-n", "shop"); code != 0 || out != "nothing was changed\n" {
		t.Errorf("exit code %d, %s", code, out)
	}
	if left, err := filepath.Glob(filepath.Join(os.TempDir(), "ashorectl-edit-*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	editor(t, "hosts", "refuse")
	code, out, errOut = result(t, "--socket", socket, "edit", "vs", "shop/web")
	kept := regexp.MustCompile(`the text is in (\S+): correct it there`).FindStringSubmatch(errOut)
	if code != 1 || kept == nil || !strings.Contains(out, "spec.hosts") {
		t.Fatalf("exit code %d, %s%s", code, out, errOut)
	}
	if text, err := os.ReadFile(kept[1]); err != nil || !strings.Contains(string(text), "refuse:") || !strings.Contains(string(text), "kind: VirtualService") {
		t.Errorf("kept %q, %v", text, err)
	}
	t.Setenv("EDITOR", "false")
	if code, _, errOut := result(t, "--socket", socket, "edit", "vs", "shop/web"); code != 1 || !strings.Contains(errOut, "run the editor false") {
		t.Errorf("exit code %d, %s", code, errOut)
	}
	if code, _, errOut := result(t, "--socket", socket, "edit", "vs", "shop/none"); code != 1 || !strings.Contains(errOut, "the store has no") {
		t.Errorf("exit code %d, %s", code, errOut)
	}
}

// As of kubectl, the exit code is 1 for a difference, and more for an error.
func TestDiff(t *testing.T) {
	t.Parallel()
	socket := serve(t, &fake{})
	dir := t.TempDir()
	for name, want := range map[string]struct {
		code int
		out  string
	}{
		"new.yaml":      {1, "--- a\n+++ b\n"},
		"same.yaml":     {0, ""},
		"conflict.yaml": {2, ""},
		"bad.yaml":      {2, "ERROR bad.yaml:3\n  ServiceEntry shop/web  spec.hosts\n  is missing\n\n1 error, 0 warnings\n"},
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		if code, out, errOut := result(t, "--socket", socket, "diff", "-f", path); code != want.code || out != want.out {
			t.Errorf("%s: exit code %d, %q, %s; want %d, %q", name, code, out, errOut, want.code, want.out)
		}
	}
}
