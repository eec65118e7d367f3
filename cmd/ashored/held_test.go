package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/testlog"
	"github.com/ashore-mesh/ashore/push"
)

// beginBoth starts ashored, anew if it runs, with both folders.
func (m *moving) beginBoth() {
	m.t.Helper()
	if m.stop != nil {
		m.end()
	}
	m.write("ashored.yaml", fmt.Sprintf("sources:\n- {kind: files, folder: %s}\n- {name: more, kind: files, folder: %s}\n", filepath.Join(m.dir, "one"), filepath.Join(m.dir, "two")))
	m.stop = m.start(m.t)
}

// An object that is moved from one folder to another, and has a slip there, stays in use, whichever is seen first and over starts;
// also with another name. It goes when the other folder is mended without it.
func TestMovedBetweenFoldersAndRefused(t *testing.T) {
	t.Parallel()
	slip := func(name string) string {
		return strings.Replace(fmt.Sprintf(entryFile, name), "resolution", "resolutoin", 1)
	}
	for name, c := range map[string]struct{ as, text string }{
		"with its name":     {"web", "is refused where it stands now"},
		"with another name": {"wep", "web.yaml of file:"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMoving(t)
			m.write("two/none.yaml", "# nothing yet\n")
			m.beginBoth()
			m.has("web one/web.yaml", "db one/db.yaml")
			m.says("", "")
			if err := os.Remove(filepath.Join(m.dir, "one/web.yaml")); err != nil {
				t.Fatal(err)
			}
			time.Sleep(200 * time.Millisecond) // the removal is seen by itself
			m.write("two/web.yaml", slip(c.as))
			m.says("ServiceEntry shop/web", c.text)
			m.has("web one/web.yaml", "db one/db.yaml")
			for range 2 {
				m.beginBoth()
				m.has("web one/web.yaml", "db one/db.yaml")
				m.says("ServiceEntry shop/web", c.text)
			}
			m.write("two/web.yaml", fmt.Sprintf(entryFile, c.as))
			m.has(c.as+" two/web.yaml", "db one/db.yaml")
			m.says("", "")
			m.keeps("one", "two")
		})
	}
}

// What a file defined stays when its objects run together, over starts too, and the problem names it; one that is taken out of a file
// in order goes at once.
func TestObjectsRunTogether(t *testing.T) {
	t.Parallel()
	m := newMoving(t)
	web, api := fmt.Sprintf(entryFile, "web"), fmt.Sprintf(entryFile, "api")
	m.write("one/web.yaml", web+"---\n"+api)
	m.has("web one/web.yaml", "api one/web.yaml", "db one/db.yaml")
	m.write("one/web.yaml", web+"# ---\n"+api)
	for range 2 {
		m.says("", "stays in use: ServiceEntry shop/api, ServiceEntry shop/web")
		m.has("web one/web.yaml", "api one/web.yaml", "db one/db.yaml")
		m.begin("one")
	}
	m.write("one/web.yaml", web)
	m.has("web one/web.yaml", "db one/db.yaml")
	m.says("", "")
}

// Where several folders are read, files are called by their whole path; one that is the only one, by their names in it.
func TestFilesOfSeveralFolders(t *testing.T) {
	t.Parallel()
	m := newMoving(t)
	m.write("two/db.yaml", "kind: [\n")
	for _, c := range []struct {
		begin         func()
		web, refusing string
	}{
		{m.beginBoth, filepath.Join(m.dir, "one/web.yaml"), filepath.Join(m.dir, "two/db.yaml")},
		{func() { m.begin("one") }, "web.yaml", ""},
	} {
		c.begin()
		m.until(t, "having "+c.web, func() bool {
			objects, err := m.client.Objects(t.Context(), "se", "shop", "web")
			return err == nil && len(objects) == 1 && objects[0].Origin.File == c.web
		})
		m.until(t, "a problem of "+c.refusing, func() bool {
			list, err := m.client.Problems(t.Context())
			return err == nil && (len(list) == 1 && list[0].File == c.refusing || len(list) == 0 && c.refusing == "")
		})
	}
}

// What is held is read back as it was; what is no record of that is left out.
func TestHeldRecord(t *testing.T) {
	t.Parallel()
	o := config.Parse("web.yaml", fmt.Appendf(nil, entryFile, "web")).Objects[0]
	o.Origin.Source = "file:/one"
	at := time.Date(2026, 1, 1, 0, 0, 0, 1, time.UTC)
	b, err := encodeHeld(push.Held{Object: o, Beside: feed.GroupID{Source: "file:/two", Group: "x.yaml"}, Gone: at})
	if err != nil {
		t.Fatal(err)
	}
	got, err := decodeHeld(b)
	if err != nil || !got.Gone.Equal(at) || got.Object.Hash != o.Hash || got.Object.Key != o.Key || got.Object.Origin != o.Origin || got.Beside != (feed.GroupID{Source: "file:/two", Group: "x.yaml"}) {
		t.Errorf("got %v, %v, want %v beside x.yaml of file:/two", got, err, o)
	}
	for _, odd := range []string{"", "{}", `{"text": "kind: ["}`} {
		if got, err := decodeHeld([]byte(odd)); err == nil {
			t.Errorf("%q is read as %v", odd, got)
		}
	}
}

// What is held here, and went for others, is kept as both.
func TestHeldUntold(t *testing.T) {
	t.Parallel()
	store := &heldStore{all: map[string][]byte{}}
	keeper, _, err := newHeldKeeper(t.Context(), store, testlog.New(t))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- keeper.run(ctx) }()
	o := config.Parse("web.yaml", fmt.Appendf(nil, entryFile, "web")).Objects[0]
	keeper.keep([]push.Held{{Object: o, Untold: true}, {Object: o, Gone: time.Date(2026, 1, 1, 0, 0, 0, 1, time.UTC)}})
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	_, held, err := newHeldKeeper(t.Context(), store, testlog.New(t))
	if err != nil || len(held) != 2 || !held[0].Untold || !held[0].Gone.IsZero() || held[1].Untold || held[1].Gone.IsZero() {
		t.Errorf("held are %v (%v)", held, err)
	}
}

// heldStore has what is held, in memory.
type heldStore struct {
	mu   sync.Mutex
	all  map[string][]byte
	full bool // it lets go of things, and takes nothing
}

func (s *heldStore) LoadLastGood(context.Context, string) (map[string][]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.all), nil
}

func (s *heldStore) SaveLastGood(_ context.Context, _ string, contents map[string][]byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range contents {
		if s.full && b != nil {
			return errors.New("no space left on device")
		}
	}
	maps.Copy(s.all, contents)
	maps.DeleteFunc(s.all, func(_ string, b []byte) bool { return b == nil })
	return nil
}

// What went long ago is not kept on where the disk has no room for something else, unless it is held now, and that is not kept yet.
func TestGoneLapsesWithoutRoom(t *testing.T) {
	t.Parallel()
	object := func(name string) *config.Object {
		return config.Parse("web.yaml", fmt.Appendf(nil, entryFile, name)).Objects[0]
	}
	web, other := object("web"), object("other")
	name := web.Key.String()
	for what, c := range map[string]struct {
		before, now []push.Held // gone is web
		stays       bool
	}{
		"it is over":                    {[]push.Held{{Object: web, Gone: time.Now()}}, []push.Held{{Object: other}}, false},
		"it is over, and held for some": {[]push.Held{{Object: web, Untold: true}, {Object: web, Gone: time.Now()}}, []push.Held{{Object: web, Untold: true}, {Object: other}}, false},
		"it is held":                    {[]push.Held{{Object: web, Gone: time.Now()}}, []push.Held{{Object: web}, {Object: other}}, true},
		"it is held for all":            {[]push.Held{{Object: web, Untold: true}, {Object: web, Gone: time.Now()}}, []push.Held{{Object: web}, {Object: other}}, true},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			store := &heldStore{all: map[string][]byte{}, full: true}
			for i, h := range c.before {
				b, err := encodeHeld(h)
				if err != nil {
					t.Fatal(err)
				}
				store.all[name+[]string{"", goneToo}[i]] = b
			}
			h, before, err := newHeldKeeper(t.Context(), store, testlog.New(t))
			if err != nil {
				t.Fatal(err)
			}
			if c.now[0].Untold {
				c.now[0] = before[0] // it is the same one
			}
			h.keep(c.now)
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if err := h.run(ctx); err != nil {
				t.Fatal(err)
			}
			_, after, err := newHeldKeeper(t.Context(), store, testlog.New(t))
			if gone := slices.ContainsFunc(after, func(h push.Held) bool { return !h.Gone.IsZero() }); err != nil || gone != c.stays {
				t.Errorf("it is kept that it went: %v, want %v (%v)", gone, c.stays, err)
			}
		})
	}
}

// What was gone already, and cannot be read by this release or at all, is nobody's loss: it is kept on no more.
func TestGoneUnread(t *testing.T) {
	t.Parallel()
	b, err := encodeHeld(push.Held{Object: config.Parse("web.yaml", fmt.Appendf(nil, entryFile, "web")).Objects[0], Gone: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	const name = "ServiceEntry shop/web"
	refused := bytes.ReplaceAll(b, []byte("80"), []byte("80000"))
	for what, all := range map[string]map[string][]byte{
		"refused":                          {name: refused},
		"refused, of one that is held too": {name + goneToo: refused},
		"no record":                        {name + goneToo: []byte("{")},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			store := &heldStore{all: all}
			h, held, err := newHeldKeeper(t.Context(), store, testlog.New(t))
			if err != nil || len(held) > 0 || len(h.problems(func(config.Key) bool { return false })) > 0 {
				t.Fatalf("held is %v, problems are %v, %v", held, h.problems(func(config.Key) bool { return false }), err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if err := h.run(ctx); err != nil || len(store.all) > 0 {
				t.Errorf("kept are %q, %v", store.all, err)
			}
		})
	}
}

// What was held, and cannot be read by this release, is told, and kept on, until there is an object of its name.
func TestHeldUnread(t *testing.T) {
	t.Parallel()
	b, err := encodeHeld(push.Held{Object: config.Parse("web.yaml", fmt.Appendf(nil, entryFile, "web")).Objects[0]})
	if err != nil {
		t.Fatal(err)
	}
	const lost, other = "ServiceEntry shop/web", "ServiceEntry shop/db"
	store := &heldStore{all: map[string][]byte{lost: bytes.ReplaceAll(b, []byte("80"), []byte("80000"))}}
	another := config.Parse("db.yaml", fmt.Appendf(nil, entryFile, "db")).Objects[0]
	for _, step := range []struct {
		found bool
		held  []push.Held
		want  []string // kept then
	}{
		{false, []push.Held{{Object: another}}, []string{other, lost}},
		{false, nil, []string{lost}},
		{true, nil, nil},
	} {
		h, held, err := newHeldKeeper(t.Context(), store, testlog.New(t))
		if err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(held, func(h push.Held) bool { return h.Object.Key.String() == lost }) {
			t.Errorf("held is %v", held)
		}
		h.keep(step.held)
		list := h.problems(func(k config.Key) bool { return step.found && k.String() == lost })
		if step.found != (len(list) == 0) || !step.found && (list[0].Object != lost || list[0].Severity != feed.Error || !strings.Contains(list[0].Text, "80000")) {
			t.Errorf("problems are %v, and it is found: %v", list, step.found)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := h.run(ctx); err != nil {
			t.Fatal(err)
		}
		if got := slices.Sorted(maps.Keys(store.all)); !slices.Equal(got, step.want) {
			t.Errorf("kept are %v, want %v", got, step.want)
		}
	}
}
