package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ashore-mesh/ashore/config"
)

const good = `apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: db, namespace: shop}
spec:
  hosts: [db.shop.svc.cluster.local]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: 80, name: http, protocol: HTTP}]
  endpoints: [{address: 10.0.0.1}]
`

func TestValidate(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		files map[string]string
		code  int
		want  []string
	}{
		{"good", map[string]string{"a.yaml": good, "notes.txt": "x: [", "UNREAD.YAML": "x: [", ".hidden.yaml": "x: ["}, 0, []string{"1 object in 1 file: no problems"}},
		{"unknown field", map[string]string{"sub/a.yaml": strings.Replace(good, "hosts:", "hostz:", 1)}, 1, []string{"ERROR ", "sub/a.yaml:5", "hosts", "1 error, 0 warnings"}},
		// ashored keeps what an empty file defined, and says so.
		{"empty", map[string]string{"a.yaml": good, "b.yaml": "\n\x00"}, 1, []string{"b.yaml\n  the file is empty", "1 error, 0 warnings"}},
		// The size counts that ashored takes from a folder, and not that of a request to its
		// webhook.
		{"large", map[string]string{"a.yaml": good + "#" + strings.Repeat("x", config.MaxFileSize-len(good)-1)}, 0, []string{"1 object in 1 file: no problems"}},
		{"too large", map[string]string{"a.yaml": good + "#" + strings.Repeat("x", config.MaxFileSize-len(good))}, 1, []string{"4194305 bytes, more than 4194304"}},
		{"a comment alone", map[string]string{"a.yaml": "# nothing\n"}, 0, []string{"0 objects in 1 file: no problems"}},
		// One object in two files names both.
		{"twice", map[string]string{"a.yaml": good, "b.yaml": good}, 1, []string{"b.yaml:1", "ServiceEntry shop/db", "a.yaml:1 defines it too and takes precedence"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for name, text := range tc.files {
				path := filepath.Join(dir, name)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			code, out, errOut := result(t, "validate", "-f", dir)
			if code != tc.code || errOut != "" {
				t.Errorf("exit code %d, want %d; standard error %q", code, tc.code, errOut)
			}
			for _, w := range tc.want {
				if !strings.Contains(out, w) {
					t.Errorf("output %q, want %q in it", out, w)
				}
			}
		})
	}
}

// A symlink to a folder stands for the folder, and so does one below the one that is named, when
// asked for; one that leads in a circle is a warning.
func TestValidateLink(t *testing.T) {
	t.Parallel()
	dir, above := t.TempDir(), t.TempDir()
	link := filepath.Join(above, "config")
	if err := os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(good), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	if code, out, errOut := result(t, "validate", "-f", link); code != 0 ||
		!strings.Contains(out, "1 object in 1 file") {
		t.Errorf("exit code %d, output %q, %q; want its one object", code, out, errOut)
	}
	if code, out, errOut := result(t, "validate", "-f", above); code != 1 ||
		!strings.Contains(out, "a symbolic link leads out of the folder, to "+dir) {
		t.Errorf("not followed: exit code %d, output %q, %q; want that the link is refused", code, out, errOut)
	}
}

// Standard input is a file like others, beside them.
func TestValidateInput(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "a.yaml")
	if err := os.WriteFile(file, []byte(good), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		in   string
		args []string
		want string
	}{
		"good":         {good, nil, "1 object in 1 file: no problems"},
		"wrong":        {strings.Replace(good, "hosts:", "hostz:", 1), nil, "ERROR standard input:5"},
		"with a file":  {good, []string{"-f", file}, "standard input:1 defines it too and takes precedence"},
		"much too big": {strings.Repeat("#", config.MaxFileSize+5), nil, "split it into several files"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			cmd := newRoot()
			cmd.SetArgs(append([]string{"validate", "-f", "-"}, tc.args...))
			cmd.SetIn(strings.NewReader(tc.in))
			cmd.SetOut(&out)
			err := cmd.ExecuteContext(t.Context())
			if !strings.Contains(out.String(), tc.want) || errors.Is(err, errFound) == (name == "good") {
				t.Errorf("got %v, %q; want %q", err, &out, tc.want)
			}
		})
	}
}

// What cannot be read is a problem of its own and hides no other, and a pipe is not waited for.
func TestValidateUnreadable(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(dir, "a.yaml"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/nowhere", filepath.Join(dir, "b.yaml")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "c.yaml"), []byte("kind: Foo\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, out, _ := result(t, "validate", "-f", dir)
	for _, name := range []string{"/a.yaml", "/b.yaml", "/c.yaml"} {
		if !strings.Contains(out, name) {
			t.Errorf("no problem of %s: %s", name, out)
		}
	}
}
