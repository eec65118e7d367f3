package filestore

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
)

// listing is what a scan found.
type listing struct {
	files  map[string]stamp           // by path within the folder
	dirs   map[string]bool            // folders that were read, "." included
	failed map[string]error           // folders that could not be read
	loops  map[string]config.Problem  // symlinks that were not followed
	seen   map[[2]uint64]string       // device and inode of folders
	later  []string                   // symlinks to folders, read after the real ones
	watch  func(dir string, in stamp) // called before a folder is read
}

// scan lists a folder without reading files. A folder that is reached twice is read once, under its own
// path rather than a symlink's, so symlinks cannot lead in a circle.
func scan(root string, watch func(dir string, in stamp)) *listing {
	l := &listing{files: map[string]stamp{}, dirs: map[string]bool{}, failed: map[string]error{}, loops: map[string]config.Problem{},
		seen: map[[2]uint64]string{}, watch: watch}
	l.dir(root, ".")
	for len(l.later) > 0 {
		next := l.later[0]
		l.later = l.later[1:]
		l.dir(root, next)
	}
	return l
}

// dir lists one folder.
func (l *listing) dir(root, rel string) {
	path := filepath.Join(root, rel)
	info, err := os.Stat(path)
	if err != nil {
		l.failed[rel] = err
		return
	}
	s := stampOf(info)
	if first, again := l.seen[[2]uint64{s.device, s.inode}]; again {
		l.loops[rel] = config.Problem{Severity: feed.Warning, File: rel,
			Text: fmt.Sprintf("the symlink leads to the folder %s, which is read already: remove it", first)}
		return
	}
	l.seen[[2]uint64{s.device, s.inode}] = rel
	l.watch(path, s)
	entries, err := os.ReadDir(path)
	if err != nil {
		l.failed[rel] = err
		return
	}
	l.dirs[rel] = true
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return cmp.Compare(a.Name(), b.Name()) })
	for _, e := range entries {
		if !hidden(e.Name()) {
			l.entry(root, filepath.Join(rel, e.Name()), e)
		}
	}
}

func (l *listing) entry(root, rel string, e fs.DirEntry) {
	if e.IsDir() {
		l.dir(root, rel)
		return
	}
	link := e.Type()&fs.ModeSymlink != 0
	if !link && !isConfig(rel) {
		return
	}
	info, err := os.Stat(filepath.Join(root, rel))
	switch {
	case err == nil && info.IsDir():
		l.later = append(l.later, rel)
	case !isConfig(rel):
	case err == nil:
		l.files[rel] = stampOf(info)
	default:
		l.files[rel] = stamp{} // a link to nowhere, or it is gone again: reading it tells
	}
}

// unknown says that nothing can be said about a file, because a folder on its way cannot be read.
func (l *listing) unknown(name string) bool {
	for dir := range l.failed {
		if dir == "." || strings.HasPrefix(name, dir+string(filepath.Separator)) {
			return true
		}
	}
	return false
}
