package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/filestore/bolt"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/testlog"
)

// fresh is a control plane that never ran, with the folder one, which has the service web.
func fresh(t *testing.T) *moving {
	t.Helper()
	m := newMoving(t)
	m.end()
	m.stop = nil
	if err := os.RemoveAll(filepath.Join(m.dir, "state")); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(m.dir, "one/db.yaml")); err != nil {
		t.Fatal(err)
	}
	return m
}

// source is how the source of a folder stands.
func (m *moving) source(folder string) (feed.SourceStatus, bool) {
	m.t.Helper()
	s, err := m.client.Status(m.t.Context())
	if err != nil {
		return feed.SourceStatus{}, false
	}
	i := slices.IndexFunc(s.Sources, func(s feed.SourceStatus) bool { return s.Name == "file:"+filepath.Join(m.dir, folder) })
	if i < 0 {
		return feed.SourceStatus{}, false
	}
	return s.Sources[i], true
}

// unread waits until the source of a folder says that it was never read, why, and what to do.
func (m *moving) unread(folder, text string) {
	m.t.Helper()
	m.until(m.t, fmt.Sprintf("saying %q of %s", text, folder), func() bool {
		s, ok := m.source(folder)
		return ok && !s.Synced && !s.Required && s.Setting == folder && strings.Contains(s.Error, text)
	})
	m.says("", filepath.Join(m.dir, folder))
}

func (m *moving) mkdir(folder string) {
	m.t.Helper()
	if err := os.MkdirAll(filepath.Join(m.dir, folder), 0o755); err != nil {
		m.t.Fatal(err)
	}
}

// A folder that is not required keeps nobody waiting: whether it is not there, empty or no folder at the start, on a new state or
// after other starts, ashored serves, says so, and reads it when it is there.
func TestStartWithoutOptionalFolder(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		make func(*moving)
		text string
	}{
		"not there": {func(*moving) {}, "there is no folder of configuration"},
		"empty":     {func(m *moving) { m.mkdir("two") }, "holds no file"},
		"a file":    {func(m *moving) { m.write("two", "") }, "cannot be read (not a directory)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := fresh(t)
			c.make(m)
			for range 2 { // the second time there is a state
				m.beginWith("!one", "two")
				m.has("web one/web.yaml")
				m.unread("two", c.text)
			}
			if err := os.RemoveAll(filepath.Join(m.dir, "two")); err != nil {
				t.Fatal(err)
			}
			m.write("two/api.yaml", fmt.Sprintf(entryFile, "api"))
			m.has("web one/web.yaml", "api two/api.yaml")
			m.says("", "")
			if s, ok := m.source("two"); !ok || !s.Synced || s.Error != "" || s.LastError == "" {
				t.Errorf("its status is %+v, %v", s, ok)
			}
			m.keeps("one", "two")
		})
	}
}

// One that is required and was never read is refused at the start, with where it stands in the settings and what to do, on a new
// state and after other starts.
func TestStartWithoutRequiredFolder(t *testing.T) {
	t.Parallel()
	m := fresh(t)
	m.write("ashored.yaml", fmt.Sprintf("sources:\n- {name: one, kind: files, folder: %s}\n- {name: two, kind: files, folder: %s}\n", filepath.Join(m.dir, "one"), filepath.Join(m.dir, "two")))
	refused := func() {
		t.Helper()
		var said testlog.Text
		if code := run(t.Context(), m.args(), io.Discard, &said); code != exitFailed {
			t.Errorf("exit code %d, want %d", code, exitFailed)
		}
		for _, want := range []string{m.config + `:3: sources[1]: source "two": read the folder of configuration ` + filepath.Join(m.dir, "two"), "required: false"} {
			if !strings.Contains(said.String(), want) {
				t.Errorf("it said %q, want %q", said.String(), want)
			}
		}
	}
	refused()
	if _, err := os.Stat(filepath.Join(m.dir, "state")); !os.IsNotExist(err) {
		t.Errorf("the state folder: %v; want none", err)
	}
	m.mkdir("two") // an empty one is a beginning
	settings, err := os.ReadFile(m.config)
	if err != nil {
		t.Fatal(err)
	}
	m.begin("one")
	m.end()
	m.stop = nil
	m.write("ashored.yaml", string(settings))
	if err := os.Remove(filepath.Join(m.dir, "two")); err != nil {
		t.Fatal(err)
	}
	refused()
}

// A reload takes in a folder that is not there when that is not required, refuses it when it is, and takes it as it is when it
// becomes required later.
func TestReloadWithoutFolder(t *testing.T) {
	t.Parallel()
	m := fresh(t)
	settings := func(required bool) {
		m.write("ashored.yaml", fmt.Sprintf("sources:\n- {name: one, kind: files, folder: %s}\n- {name: two, kind: files, folder: %s, required: %v}\n",
			filepath.Join(m.dir, "one"), filepath.Join(m.dir, "two"), required))
	}
	m.write("ashored.yaml", fmt.Sprintf("sources: [{name: one, kind: files, folder: %s}]\n", filepath.Join(m.dir, "one")))
	cmd, wait := m.child(t)
	hangUp := func() {
		t.Helper()
		if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
	}
	m.has("web one/web.yaml")

	settings(true)
	hangUp()
	m.says("", `:3: sources[1]: source "two": read the folder of configuration `+filepath.Join(m.dir, "two"))
	settings(false)
	hangUp()
	m.unread("two", "there is no folder of configuration")
	m.mkdir("two")
	m.unread("two", "holds no file")
	settings(true)
	hangUp()
	m.says("", "two holds no file of configuration: fill it first")
	m.has("web one/web.yaml")
	m.write("two/api.yaml", fmt.Sprintf(entryFile, "api"))
	m.has("web one/web.yaml", "api two/api.yaml")
	hangUp()
	m.says("", "")
	m.has("web one/web.yaml", "api two/api.yaml")
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := wait(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
}

// A folder that is not required and has nothing to read may take the place of another one: what that had stays in use, over
// starts too, until the new one was read.
func TestOptionalFolderTakesPlace(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		make func(*moving)
		text string
	}{
		"not there": {func(*moving) {}, "there is no folder of configuration"},
		"empty":     {func(m *moving) { m.mkdir("two") }, "holds no file"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMoving(t)
			c.make(m)
			for range 2 {
				m.beginWith("two")
				m.has("web one/web.yaml", "db one/db.yaml")
				m.unread("two", c.text)
				m.says("ServiceEntry shop/db", "may stand now in what was not read since, file:"+filepath.Join(m.dir, "two"))
			}
			m.write("two/web.yaml", fmt.Sprintf(entryFile, "web"))
			m.has("web two/web.yaml", "db one/db.yaml") // the other one may be on its way
			m.has("web two/web.yaml")
			m.says("", "")
			m.keeps("two")
		})
	}
}

// A folder that vanishes between a reload, which saw it, and its first reading is waited for: it ends nothing that is at work. What
// vanishes so at a start ends that.
func TestFolderVanishesUnread(t *testing.T) {
	t.Parallel()
	for name, running := range map[string]bool{"reload": true, "start": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			home, err := bolt.New(bolt.Config{Dir: filepath.Join(t.TempDir(), "state"), Log: testlog.New(t)})
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := home.Close(); err != nil {
					t.Error(err)
				}
			}()
			m := newSourceMaker(home, home, nil, testlog.New(t))
			if running {
				m.made["store"] = madeSource{objects: home}
			}
			folder := filepath.Join(t.TempDir(), "two")
			if err := errors.Join(os.Mkdir(folder, 0o755), os.WriteFile(filepath.Join(folder, "none.yaml"), []byte("# nothing\n"), 0o600)); err != nil {
				t.Fatal(err)
			}
			sources, _, err := m.make(t.Context(), defaultSources(folder)[:1])
			if err != nil {
				t.Fatal(err)
			}
			if err := os.RemoveAll(folder); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			out, done := make(chan feed.Batch[*config.Object]), make(chan error, 1)
			go func() { done <- sources.Objects[0].Run(ctx, out) }()
			select {
			case b := <-out:
				if !running || b.Full || b.Standing == nil || !strings.Contains(b.Standing.Error, folder) {
					t.Errorf("it says %+v", b)
				}
				cancel()
				if err := <-done; err != nil {
					t.Error(err)
				}
			case err := <-done:
				if running || !errors.Is(err, os.ErrNotExist) {
					t.Errorf("it ends with %v", err)
				}
			}
			cancel()
		})
	}
}
