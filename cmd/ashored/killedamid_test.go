package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A process that is killed amid a change, or shortly after, loses nothing that was moved with a slip, and what goes with the mending
// stays away.
func TestKilledAmidChange(t *testing.T) {
	t.Parallel()
	renamed, noYAML := strings.Replace(fmt.Sprintf(entryFile, "wep"), "resolution", "resolutoin", 1), "kind: [\n"
	for name, c := range map[string]struct {
		to, slip     string
		removedFirst bool
		seen         int // how many of the two are before the end
	}{
		"slip while down":                  {"one", renamed, true, 1},
		"slip while down, other folder":    {"two", renamed, true, 1},
		"slip before":                      {"one", noYAML, true, 2},
		"slip before, other folder":        {"two", noYAML, true, 2},
		"removal while down":               {"one", noYAML, false, 1},
		"removal while down, other folder": {"two", noYAML, false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMoving(t)
			m.write("two/none.yaml", "# nothing yet\n")
			m.beginBoth()
			m.has("web one/web.yaml", "db one/db.yaml")
			m.end()
			m.stop = nil
			killed, wait := m.child(t)
			m.has("web one/web.yaml", "db one/db.yaml")
			time.Sleep(1500 * time.Millisecond) // its start is no part of the change
			bad := c.to + "/more.yaml"
			steps := []func(){func() { m.remove("one/web.yaml") }, func() { m.write(bad, c.slip) }}
			if !c.removedFirst {
				steps[0], steps[1] = steps[1], steps[0]
			}
			for _, step := range steps[:c.seen] {
				step()
				time.Sleep(300 * time.Millisecond)
			}
			if err := killed.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			wait()
			for _, step := range steps[c.seen:] {
				step()
			}
			m.stop = m.start(t)
			m.stays("ServiceEntry shop/web")
			m.write(bad, "# taken out\n")
			m.has("db one/db.yaml")
			m.says("", "")
		})
	}
}

// remove deletes a file.
func (m *moving) remove(name string) {
	m.t.Helper()
	if err := os.Remove(filepath.Join(m.dir, name)); err != nil {
		m.t.Fatal(err)
	}
}

// stays waits until a problem says that an object stays for an error elsewhere, and checks that it is there all the while.
func (m *moving) stays(object string) {
	m.t.Helper()
	said := time.Now()
	for time.Since(said) < 6*time.Second { // for longer than a file that is missing at a start is waited for
		objects, err := m.client.Objects(m.t.Context(), "se", "shop", "web")
		if err != nil || len(objects) != 1 {
			m.t.Fatalf("%s is not in use: %v, %v", object, objects, err)
		}
		time.Sleep(200 * time.Millisecond)
	}
	m.until(m.t, "saying why "+object+" stays", func() bool {
		list, err := m.client.Problems(m.t.Context())
		for _, p := range list {
			if p.Stale && strings.Contains(p.String(), object) {
				return err == nil
			}
		}
		return false
	})
}
