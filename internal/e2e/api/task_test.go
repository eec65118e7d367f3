package api

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/tools/txtar"

	"github.com/ashore-mesh/ashore/internal/e2e/harness"
)

// Each task gets what Istio's documentation promises. A task of testdata is a list of steps, which
// are the parts of its file in order:
//
//	NAME.yaml          ashorectl apply -f NAME.yaml
//	delete NAME.yaml   ashorectl delete -f NAME.yaml
//	calls              lines as call describes them
//
// Tasks of traffic have hosts of their own and run together. Those of security are about the
// workload web or the gateways, and run one after the other.
func TestTasks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, group := range []string{"traffic", "security"} {
		files, err := filepath.Glob(filepath.Join("testdata", group, "*.txtar"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no tasks of %s: %v", group, err)
		}
		t.Run(group, func(t *testing.T) {
			for _, file := range files {
				t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
					if group == "traffic" {
						t.Parallel()
					}
					w.task(t, file)
				})
			}
		})
	}
}

// task runs the steps of a file, and deletes what they leave.
func (w *world) task(t *testing.T, file string) {
	archive, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	dir, active := t.TempDir(), map[string]bool{}
	defer func() {
		for name := range active {
			w.ashorectl(t, "delete", "--ignore-not-found", "-f", filepath.Join(dir, name))
		}
	}()
	for _, step := range archive.Files {
		text := harness.Expand(t, w.vars.Replace(string(step.Data)))
		name, isDelete := strings.CutPrefix(step.Name, "delete ")
		path := filepath.Join(dir, name)
		switch {
		case name == "calls":
			w.calls(t, text)
		case isDelete:
			w.ashorectl(t, "delete", "-f", path)
			delete(active, name)
		default:
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			w.ashorectl(t, "apply", "-f", path)
			active[name] = true
		}
		if t.Failed() {
			return
		}
	}
}

func (w *world) ashorectl(t *testing.T, args ...string) {
	t.Helper()
	out, code, err := harness.Command("ashorectl", append([]string{"--socket", w.Socket()}, args...)...)
	if err != nil || code != 0 {
		t.Fatalf("ashorectl %s: exit code %d, error %v:\n%s", strings.Join(args, " "), code, err, out)
	}
}

// calls makes each call until it gets what it should, and then all of them once more.
func (w *world) calls(t *testing.T, text string) {
	t.Helper()
	var all []call
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			all = append(all, w.parse(t, line))
		}
	}
	for _, c := range all {
		err := c.run()
		for end := time.Now().Add(settled); err != nil && time.Now().Before(end); err = c.run() {
			time.Sleep(50 * time.Millisecond)
		}
		if err != nil {
			t.Fatalf("%s: %v", c.line, err)
		}
	}
	for _, c := range all {
		if err := c.run(); err != nil {
			t.Errorf("once more: %s: %v", c.line, err)
		}
	}
}

// settled is how long a change may take to reach all proxies; CI machines are slow and shared.
const settled = 30 * time.Second

// fault makes a backend fail or not: "fail near", "recover near".
func (w *world) fault(t *testing.T, line string) func() error {
	what, name, _ := strings.Cut(line, " ")
	b := w.backends[name]
	if b == nil {
		t.Fatalf("cannot read %q", line)
	}
	return func() error {
		b.Fail.Store(what == "fail")
		return nil
	}
}
