package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// beginWith starts ashored, anew if it runs, with sources: an optional folder each, or a required one where an exclamation mark stands
// before it.
func (m *moving) beginWith(folders ...string) {
	m.t.Helper()
	if m.stop != nil {
		m.end()
	}
	list := "sources:\n"
	for _, f := range folders {
		name, required := strings.CutPrefix(f, "!")
		list += fmt.Sprintf("- {name: %s, kind: files, folder: %s, required: %v}\n", name, filepath.Join(m.dir, name), required)
	}
	m.write("ashored.yaml", list)
	m.stop = m.start(m.t)
}

// rename moves a folder or file.
func (m *moving) rename(from, to string) {
	m.t.Helper()
	if err := os.Rename(filepath.Join(m.dir, from), filepath.Join(m.dir, to)); err != nil {
		m.t.Fatal(err)
	}
}

// What is held beside a folder that is away when ashored starts stays in use, however often it starts and whatever else is
// read, until that folder is there again and in order.
func TestHeldBesideFolderAway(t *testing.T) {
	t.Parallel()
	m := newMoving(t)
	m.write("two/api.yaml", fmt.Sprintf(entryFile, "api"))
	m.beginBoth()
	m.write("two/web.yaml", strings.Replace(fmt.Sprintf(entryFile, "web"), "resolution", "resolutoin", 1))
	m.says("ServiceEntry shop/web", "unknown field")
	m.rename("one/web.yaml", "web.yaml")
	m.says("ServiceEntry shop/web", "is refused where it stands now")
	m.end()
	m.rename("two", "away")
	m.stop = m.start(t)
	for range 2 {
		m.has("web one/web.yaml", "db one/db.yaml", "api two/api.yaml")
		m.says("ServiceEntry shop/web", "not read since is file:")
		m.beginBoth()
	}
	m.rename("away", "two")
	m.says("ServiceEntry shop/web", "is refused where it stands now")
	m.has("web one/web.yaml", "db one/db.yaml", "api two/api.yaml")
	m.write("two/web.yaml", "# taken out\n")
	m.has("db one/db.yaml", "api two/api.yaml")
	m.says("", "")
}

// Two folders that are not in the list any more, and none that is waited for: ashored starts, and what moved stays until it is mended.
func TestStartAfterAllLeft(t *testing.T) {
	t.Parallel()
	m := newMoving(t)
	m.write("two/api.yaml", fmt.Sprintf(entryFile, "api"))
	m.beginBoth()
	m.has("web one/web.yaml", "db one/db.yaml", "api two/api.yaml")
	m.write("three/web.yaml", strings.Replace(fmt.Sprintf(entryFile, "web"), "resolution", "resolutoin", 1))
	m.beginWith("three")
	m.has("web one/web.yaml")
	m.says("ServiceEntry shop/web", "is refused where it stands now")
	m.write("three/web.yaml", fmt.Sprintf(entryFile, "web"))
	m.has("web three/web.yaml")
	m.says("", "")
	m.keeps("three")
}

// What somebody takes away after its first folder left does not come back at a start, whatever else is held of that folder.
func TestRemovedAfterFolderLeft(t *testing.T) {
	t.Parallel()
	m := newMoving(t)
	m.write("two/web.yaml", fmt.Sprintf(entryFile, "web"))
	m.write("two/more.yaml", "kind: [\n")
	m.begin("two")
	m.has("web two/web.yaml", "db one/db.yaml")
	time.Sleep(1500 * time.Millisecond) // another change than the one that brought more.yaml
	if err := os.Remove(filepath.Join(m.dir, "two/web.yaml")); err != nil {
		t.Fatal(err)
	}
	m.has("db one/db.yaml")
	for range 2 {
		m.begin("two")
		m.has("db one/db.yaml")
		m.says("ServiceEntry shop/db", "cannot be read")
	}
	m.write("two/more.yaml", "# nothing\n")
	m.has()
	m.says("", "")
	m.keeps("two")
}

// What goes with its folder while another one is away may stand in that: it stays, and is told, until that was read.
func TestFolderLeftWhileOtherAway(t *testing.T) {
	t.Parallel()
	m := newMoving(t)
	m.write("two/api.yaml", fmt.Sprintf(entryFile, "api"))
	m.beginBoth()
	m.has("web one/web.yaml", "db one/db.yaml", "api two/api.yaml")
	m.end()
	m.stop = nil
	m.rename("one/web.yaml", "two/web.yaml")
	m.rename("two", "away")
	for range 2 {
		m.beginWith("!two")
		m.has("web one/web.yaml", "db one/db.yaml", "api two/api.yaml")
		m.says("ServiceEntry shop/db", "may stand now in what was not read since, file:")
	}
	m.rename("away", "two")
	m.has("web two/web.yaml", "api two/api.yaml")
	m.says("", "")
	m.keeps("two")
}

// What is moved from one folder to another with a slip while ashored is down stays in use, also from a file that stays.
func TestMovedWhileDown(t *testing.T) {
	t.Parallel()
	m := newMoving(t)
	web, api := fmt.Sprintf(entryFile, "web"), fmt.Sprintf(entryFile, "api")
	m.write("one/web.yaml", web+"---\n"+api)
	m.write("two/other.yaml", fmt.Sprintf(entryFile, "other"))
	m.beginBoth()
	m.has("web one/web.yaml", "api one/web.yaml", "db one/db.yaml", "other two/other.yaml")
	m.end()
	m.stop = nil
	m.write("one/web.yaml", api)
	m.write("two/web.yaml", strings.Replace(web, "resolution", "resolutoin", 1))
	for range 2 {
		m.beginBoth()
		m.has("web one/web.yaml", "api one/web.yaml", "db one/db.yaml", "other two/other.yaml")
		m.says("ServiceEntry shop/web", "is refused where it stands now")
	}
	m.write("two/web.yaml", "# taken out\n")
	m.has("api one/web.yaml", "db one/db.yaml", "other two/other.yaml")
	m.says("", "")
}

// So does what stood in a file of its own, whether the other folder is there when ashored starts or comes later.
func TestFileMovedWhileDown(t *testing.T) {
	t.Parallel()
	for name, late := range map[string]bool{"both are there": false, "the other one comes later": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMoving(t)
			m.write("two/other.yaml", fmt.Sprintf(entryFile, "other"))
			m.beginBoth()
			m.has("web one/web.yaml", "db one/db.yaml", "other two/other.yaml")
			m.end()
			m.stop = nil
			if err := os.Remove(filepath.Join(m.dir, "one/web.yaml")); err != nil {
				t.Fatal(err)
			}
			m.write("two/web.yaml", strings.Replace(fmt.Sprintf(entryFile, "web-new"), "resolution", "resolutoin", 1))
			if late {
				m.rename("two", "away")
			}
			m.beginBoth()
			m.has("web one/web.yaml", "db one/db.yaml", "other two/other.yaml")
			if late {
				time.Sleep(1500 * time.Millisecond) // longer than what is one change while it is looked
				m.rename("away", "two")
			}
			m.says("ServiceEntry shop/web", "web.yaml of file:"+filepath.Join(m.dir, "two")+", which was changed with it, has an error")
			m.has("web one/web.yaml", "db one/db.yaml", "other two/other.yaml")
			m.write("two/web.yaml", "# taken out\n")
			m.has("db one/db.yaml", "other two/other.yaml")
			m.says("", "")
		})
	}
}
