package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/filestore/bolt"
	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/feed"
)

// moving is a control plane whose settings name one folder after another.
type moving struct {
	*site
	t      *testing.T
	config string
	client *admin.Client
	stop   func() int
}

// newMoving begins with the folder one, which has the services web and db.
func newMoving(t *testing.T) *moving {
	t.Helper()
	m := &moving{site: newSite(t), t: t}
	m.config, m.client = filepath.Join(m.dir, "ashored.yaml"), admin.NewClient(m.socket)
	m.argv = []string{"--dev", "--config", m.config, "--state", filepath.Join(m.dir, "state"), "--xds-address", m.xds, "--metrics-address", m.metrics}
	m.write("one/web.yaml", fmt.Sprintf(entryFile, "web"))
	m.write("one/db.yaml", fmt.Sprintf(entryFile, "db"))
	m.begin("one")
	m.has("web one/web.yaml", "db one/db.yaml")
	return m
}

// write puts a file into one of the folders.
func (m *moving) write(name, text string) {
	m.t.Helper()
	path := filepath.Join(m.dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path+".new", []byte(text), 0o600), os.Rename(path+".new", path)); err != nil {
		m.t.Fatal(err)
	}
}

// begin starts ashored, anew if it runs, with a folder.
func (m *moving) begin(folder string) {
	m.t.Helper()
	if m.stop != nil {
		m.end()
	}
	m.write("ashored.yaml", fmt.Sprintf("sources: [{kind: files, folder: %s}]\n", filepath.Join(m.dir, folder)))
	m.stop = m.start(m.t)
}

func (m *moving) end() {
	m.t.Helper()
	if code := m.stop(); code != 0 {
		m.t.Fatalf("exit code %d, want 0", code)
	}
}

// has waits for the services that are in use, each with the file that it is from.
func (m *moving) has(want ...string) {
	m.t.Helper()
	slices.Sort(want)
	m.until(m.t, fmt.Sprintf("having %q", want), func() bool {
		objects, err := m.client.Objects(m.t.Context(), "se", "", "")
		var got []string
		for _, o := range objects {
			from := o.Origin.File
			if !filepath.IsAbs(from) {
				from = strings.TrimPrefix(o.Origin.Source, "file:") + "/" + from
			}
			got = append(got, o.Metadata.Name+" "+strings.TrimPrefix(from, m.dir+"/"))
		}
		slices.Sort(got)
		return err == nil && slices.Equal(got, want)
	})
}

// says waits for a problem about an object with a text; empty: for none at all.
func (m *moving) says(object, text string) {
	m.t.Helper()
	m.until(m.t, fmt.Sprintf("saying %q of %q", text, object), func() bool {
		list, err := m.client.Problems(m.t.Context())
		if text == "" {
			return err == nil && len(list) == 0
		}
		return slices.ContainsFunc(list, func(p feed.Problem) bool { return p.Object == object && strings.Contains(p.Text, text) })
	})
}

// keeps ends ashored, and checks of which folders something is kept once what was changed last is no change any more.
func (m *moving) keeps(want ...string) {
	m.t.Helper()
	for i := range want {
		want[i] = "file:" + filepath.Join(m.dir, want[i])
	}
	var got []string
	for range 5 {
		time.Sleep(3 * time.Second)
		m.end()
		m.stop = nil
		if got = m.kept(); slices.Equal(got, want) {
			return
		}
		m.stop = m.start(m.t)
	}
	m.t.Errorf("kept is of %q, want %q", got, want)
}

// kept are the sources of which something is.
func (m *moving) kept() []string {
	m.t.Helper()
	s, err := bolt.New(bolt.Config{Dir: filepath.Join(m.dir, "state")})
	if err != nil {
		m.t.Fatal(err)
	}
	got, err := s.LastGoodSources(m.t.Context())
	if err := errors.Join(err, s.Close()); err != nil {
		m.t.Fatal(err)
	}
	return got
}

// A folder that takes the place of another one over a start loses nothing by a slip: what is refused there stays in use as it
// was, over further starts too, until it is mended. What is not there is gone, and the old folder is forgotten.
func TestFolderMovedAndRefused(t *testing.T) {
	t.Parallel()
	m := newMoving(t)
	m.write("two/web.yaml", strings.Replace(fmt.Sprintf(entryFile, "web"), "resolution", "resolutoin", 1))
	for range 2 {
		m.begin("two")
		m.has("web one/web.yaml")
		m.says("ServiceEntry shop/web", "is refused where it stands now")
	}
	m.write("two/web.yaml", fmt.Sprintf(entryFile, "web"))
	m.has("web two/web.yaml")
	m.says("", "")
	m.keeps("two")
}

// Where a part of what took the folder's place cannot be read, anything may be in it: nothing is gone until it is mended.
func TestFolderMovedAndUnreadable(t *testing.T) {
	t.Parallel()
	m := newMoving(t)
	m.write("two/web.yaml", fmt.Sprintf(entryFile, "web"))
	m.write("two/more.yaml", "kind: [\n")
	for range 2 {
		m.begin("two")
		m.has("web two/web.yaml", "db one/db.yaml")
		m.says("ServiceEntry shop/db", "cannot be read")
	}
	m.write("two/more.yaml", "# nothing\n")
	m.has("web two/web.yaml")
	m.says("", "")
	m.keeps("two")
}

// So it is where that part was right before: what is kept of it does not say what was moved there since.
func TestFolderLeftBesideUnreadable(t *testing.T) {
	t.Parallel()
	m := newMoving(t)
	m.write("two/api.yaml", fmt.Sprintf(entryFile, "api"))
	m.beginBoth()
	m.has("web one/web.yaml", "db one/db.yaml", "api two/api.yaml")
	m.write("two/api.yaml", "kind: [\n# api and web\n")
	m.says("", "not valid YAML")
	for range 2 {
		m.beginWith("two")
		m.has("web one/web.yaml", "db one/db.yaml", "api two/api.yaml")
		m.says("ServiceEntry shop/db", "cannot be read")
	}
	m.write("two/api.yaml", fmt.Sprintf(entryFile, "api")+"---\n"+fmt.Sprintf(entryFile, "web"))
	m.has("web two/api.yaml", "api two/api.yaml")
	m.says("", "")
	m.keeps("two")
}

// A folder without any file cannot take the place of one that had some; at the first start it is a beginning.
func TestFolderMovedAndEmpty(t *testing.T) {
	t.Parallel()
	m := newMoving(t)
	m.end()
	if err := os.Mkdir(filepath.Join(m.dir, "two"), 0o755); err != nil {
		t.Fatal(err)
	}
	m.write("ashored.yaml", fmt.Sprintf("sources: [{kind: files, folder: %s}]\n", filepath.Join(m.dir, "two")))
	if code := run(t.Context(), m.args(), m.log, m.log); code != 1 || !strings.Contains(m.log.String(), "two holds no file of configuration: fill it first") {
		t.Errorf("exit code %d, said:\n%s", code, m.log)
	}
	m.stop = nil
	m.write("two/none.yaml", "# nothing is meant\n")
	m.begin("two")
	m.has()
	m.keeps()
}

// What was kept of a folder that is not read any more, and cannot be read, is told, and kept on: the rest is forgotten. It is
// over once the folder was read again.
func TestLeftoverUnread(t *testing.T) {
	t.Parallel()
	m := newMoving(t)
	m.write("two/other.yaml", fmt.Sprintf(entryFile, "other"))
	m.keeps("one")
	s, err := bolt.New(bolt.Config{Dir: filepath.Join(m.dir, "state")})
	if err != nil {
		t.Fatal(err)
	}
	damaged := map[string][]byte{"db.yaml": []byte("nonsense")}
	if err := errors.Join(s.SaveLastGood(t.Context(), "file:"+filepath.Join(m.dir, "one"), damaged), s.Close()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		m.begin("two")
		m.has("other two/other.yaml")
		m.says("", "db.yaml: the head of a kept record cannot be read")
		m.keeps("one", "two")
	}
	m.begin("one")
	m.has("web one/web.yaml", "db one/db.yaml")
	m.begin("two")
	m.has("other two/other.yaml")
	m.says("", "")
	m.keeps("two")
}
