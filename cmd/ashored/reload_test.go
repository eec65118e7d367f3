package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/audit"
)

// A hangup has the settings read anew: sources come, go and change places, a file that is wrong is
// refused whole, and what takes effect only at a start is told. A proxy stays connected all the
// time.
func TestReload(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	config, other := filepath.Join(s.dir, "ashored.yaml"), filepath.Join(s.dir, "other")
	if err := os.Mkdir(other, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(other, "db.yaml"),
		[]byte(fmt.Sprintf(entryFile, "db")+"---\n"+fmt.Sprintf(entryFile, "web")), 0o600); err != nil {
		t.Fatal(err)
	}
	settings := func(text string) {
		t.Helper()
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	one := fmt.Sprintf("- {name: one, kind: files, folder: %s}\n", filepath.Join(s.dir, "files"))
	two := fmt.Sprintf("- {name: two, kind: files, folder: %s, required: false}\n", other)
	settings("sources:\n" + one)
	s.argv = append([]string{"--dev", "--config", config}, s.set()...)
	cmd, wait := s.child(t)
	client, ctx := admin.NewClient(s.socket), t.Context()
	disconnect := s.connect(t)
	defer disconnect()
	hangUp := func() {
		t.Helper()
		if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
	}
	// has waits for the objects that are in use, with the file each is from.
	has := func(what string, want map[string]string) {
		t.Helper()
		s.until(t, what, func() bool {
			objects, err := admin.Send(ctx, client, admin.CallObjects, admin.ObjectQuery{Kind: "se"})
			if err != nil || len(objects) != len(want) {
				return false
			}
			for _, o := range objects {
				if filepath.Base(o.Origin.File) != want[o.Metadata.Name] {
					return false
				}
			}
			return true
		})
	}
	has("at the start", map[string]string{"web": "web.yaml"})

	settings("sources:\n" + one + two)
	hangUp()
	has("with another source", map[string]string{"web": "web.yaml", "db": "db.yaml"})
	settings("sources:\n" + two + one + "domain: other.example\n")
	hangUp()
	has("in another order", map[string]string{"web": "db.yaml", "db": "db.yaml"})
	problem := func(text string) func() bool {
		return func() bool {
			list, err := admin.Send(ctx, client, admin.CallProblems, admin.None{})
			for _, p := range list {
				if strings.Contains(p.Text, text) {
					return err == nil
				}
			}
			return false
		}
	}
	s.until(t, "telling what waits",
		problem("domain has changed in the settings file: restart ashored to apply it"))

	settings("sources:\n" + one + "- {kind: files, foldr: /x}\n")
	hangUp()
	s.until(t, "refusing a wrong file",
		problem(config+`:3: sources[1].foldr: unknown setting; did you mean "folder"?; the former settings stay in use`))
	settings("sources:\n" + one + "- {name: x, kind: files, folder: /there/is/none}\n")
	hangUp()
	s.until(t, "refusing a folder that there is not",
		problem(config+`:3: sources[1]: source "x": the folder /there/is/none cannot be read (no such file or directory)`))
	settings("sources:\n" + one + "- {name: x, kind: mcp, address: 'mcp.test:1', caFile: /there/is/no/ca.pem, certFile: /there/is/no/c.pem, keyFile: /there/is/no/k.pem}\n")
	hangUp()
	s.until(t, "refusing files of TLS that there are not",
		problem(`:3: sources[1]: source "x": caFile: open /there/is/no/ca.pem`))
	has("after wrong files", map[string]string{"web": "db.yaml", "db": "db.yaml"})

	settings("sources:\n" + one)
	hangUp()
	has("without the other source", map[string]string{"web": "web.yaml"})
	s.until(t, "well", func() bool {
		list, err := admin.Send(ctx, client, admin.CallProblems, admin.None{})
		return err == nil && len(list) == 0
	})
	st, err := admin.Send(ctx, client, admin.CallStatus, admin.None{})
	if err != nil || len(st.Sources) != 2 || len(st.Proxies) != 1 { // the deriver is one
		t.Errorf("status %+v, %v: want one source of objects, and the proxy that connected first", st, err)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := wait(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	raw, err := os.ReadFile(filepath.Join(s.dir, "state", "audit.jsonl"))
	if n := strings.Count(string(raw), `"action":"`+audit.SettingsReload+`"`); err != nil || n != 6 {
		t.Errorf("%d reloads are audited, %v; want 6", n, err)
	}
}
