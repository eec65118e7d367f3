package doclinks

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// root is the work tree.
const root = "../.."

// Every relative link of a page in the work tree leads to a file, and to a heading that exists.
func TestTree(t *testing.T) {
	t.Parallel()
	checkLinks(t, root)
}

// The archive of the programs has all that its pages lead to.
func TestPackage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cmd := exec.Command("make", "-s", "package-texts", "DIST="+dir)
	cmd.Dir = root
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "MAKE") && !strings.HasPrefix(v, "MFLAGS") { // of the make that runs this test
			cmd.Env = append(cmd.Env, v)
		}
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("make package-texts: %v\n%s", err, out)
	}
	checkLinks(t, filepath.Join(dir, "ashore"))
}

// checkLinks checks the pages in dir and below, hidden folders and dist left out.
func checkLinks(t *testing.T, dir string) {
	t.Helper()
	pages := 0
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != dir && (strings.HasPrefix(d.Name(), ".") || d.Name() == "dist"):
			return filepath.SkipDir
		case filepath.Ext(path) == ".md":
			pages++
			checkPage(t, path)
		}
		return nil
	})
	if err != nil || pages < 10 {
		t.Fatalf("%d pages in %s: %v", pages, dir, err)
	}
}

// checkPage checks that the files and headings that a page links to exist.
func checkPage(t *testing.T, path string) {
	t.Helper()
	for _, m := range regexp.MustCompile(`\]\(([^)#\s]*)(?:#([^)\s]*))?\)`).FindAllStringSubmatch(read(t, path), -1) {
		if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
			continue
		}
		to := path
		if m[1] != "" {
			to = filepath.Join(filepath.Dir(path), m[1])
		}
		if _, err := os.Stat(to); err != nil {
			t.Errorf("%s links to %s: %v", path, m[1], err)
			continue
		}
		if m[2] != "" && filepath.Ext(to) == ".md" && !slices.Contains(headings(read(t, to)), m[2]) {
			t.Errorf("%s links to %s: no heading has the anchor #%s", path, to, m[2])
		}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// headings returns the anchors of a page's headings, as GitHub makes them.
func headings(page string) []string {
	page = regexp.MustCompile("(?ms)^```.*?^```").ReplaceAllString(page, "") // lines of code may begin with #
	var anchors []string
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(page, -1) {
		anchor := regexp.MustCompile(`[^\w\- ]`).ReplaceAllString(strings.ToLower(m[1]), "")
		anchors = append(anchors, strings.ReplaceAll(anchor, " ", "-"))
	}
	return anchors
}

// Every path of the tree that architecture.md names exists. A placeholder such as <kind> stands for
// any name.
func TestArchitecture(t *testing.T) {
	t.Parallel()
	page := read(t, filepath.Join(root, "docs", "architecture.md"))
	paths := 0
	for _, m := range regexp.MustCompile("`([a-z]+/[A-Za-z0-9_./<>*-]+)`").FindAllStringSubmatch(page, -1) {
		if strings.Contains(m[1], "<program>") || strings.Contains(m[1], "<name>") {
			continue // what the reader is about to create
		}
		paths++
		pattern := regexp.MustCompile(`<\w+>`).ReplaceAllString(m[1], "*")
		if found, err := filepath.Glob(filepath.Join(root, pattern)); err != nil || len(found) == 0 {
			t.Errorf("architecture.md names %s, which does not exist", m[1])
		}
	}
	if paths < 50 {
		t.Fatalf("%d paths", paths)
	}
}

// A page that a comment cites as its source is there to be read.
func TestCited(t *testing.T) {
	t.Parallel()
	page := regexp.MustCompile(`//.*?[\s"(](?:docs/)?([a-z][a-z-]*\.md)\b`)
	cited := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "dist"):
			return filepath.SkipDir
		case filepath.Ext(path) != ".go":
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, m := range page.FindAllStringSubmatch(string(text), -1) {
			cited++
			if _, err := os.Stat(filepath.Join(root, "docs", m[1])); err != nil {
				t.Errorf("%s cites %s: %v", path, m[1], err)
			}
		}
		return nil
	})
	if err != nil || cited == 0 {
		t.Fatalf("%d pages are cited, error %v", cited, err)
	}
}
