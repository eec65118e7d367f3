package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/feed"
)

// A hangup makes ashored read its settings again. All changes take effect, and a proxy that
// connects again is served. A file with an error is refused as a whole, and so is one with which
// ashored does not start.
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
	s.connect(t)()
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
	settings("sources:\n" + two + one + "log: {format: json}\n")
	hangUp()
	has("in another order", map[string]string{"web": "db.yaml", "db": "db.yaml"})
	s.until(t, "logging as JSON", func() bool { return strings.Contains(s.log.String(), `"@message":"serving"`) })
	s.connect(t)()

	settings("sources:\n" + one + "- {kind: files, foldr: /x}\n")
	hangUp()
	s.until(t, "refusing a wrong file", func() bool {
		return strings.Contains(s.log.String(), "the former ones stay in use") &&
			strings.Contains(s.log.String(), config+":3: sources[1].foldr: unknown setting; did you mean")
	})
	reports := func(want string) {
		t.Helper()
		s.until(t, "the problem "+want, func() bool {
			list, err := admin.Send(ctx, client, admin.CallProblems, admin.None{})
			return err == nil && slices.ContainsFunc(list, func(p feed.Problem) bool {
				return p.Source == "settings" && strings.Contains(p.Text, want)
			})
		})
	}
	reports("ashored.yaml:3: sources[1].foldr: unknown setting")
	has("after a wrong file", map[string]string{"web": "db.yaml", "db": "db.yaml"})

	settings("sources:\n" + one + fmt.Sprintf("- {name: file, kind: files, folder: %s}\n", filepath.Join(other, "db.yaml")))
	hangUp()
	s.until(t, "going on with the former settings", func() bool {
		return strings.Contains(s.log.String(), "does not start with the new settings; the former ones are used")
	})
	has("after settings that do not start", map[string]string{"web": "db.yaml", "db": "db.yaml"})
	reports("not a directory")

	settings("sources:\n" + one)
	hangUp()
	has("without the other source", map[string]string{"web": "web.yaml"})
	s.until(t, "well", func() bool {
		list, err := admin.Send(ctx, client, admin.CallProblems, admin.None{})
		return err == nil && len(list) == 0
	})
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := wait(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
}
