package filestore

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
)

const (
	// maxEntries limits the number of files and folders, including those that are not
	// configuration.
	maxEntries = 100_000
	// maxFolders limits how deep folders nest.
	maxFolders = 32
)

// listing is the result of a scan.
type listing struct {
	files   map[string]stamp          // by path within the folder
	dirs    map[string]bool           // folders that were listed, including "."
	failed  map[string]error          // folders that could not be read
	repeats map[string]config.Problem // symlinks to folders that are listed under another path
	targets []string                  // of symlinks to files

	symlinks bool // there are some

	limit    int               // of entries
	entries  int               // so far
	paths    map[fileID]string // of the folders so far
	dirLinks []string          // symlinks to folders; they are listed after the real ones
}

// scan lists a folder without reading files. A folder that is reached twice is listed once, under
// its own path rather than a symlink's, so symlinks cannot form a loop. With more entries than
// limit the whole folder has failed.
func scan(root string, limit int) *listing {
	l := &listing{files: map[string]stamp{}, dirs: map[string]bool{}, failed: map[string]error{},
		repeats: map[string]config.Problem{}, limit: limit, paths: map[fileID]string{}}
	l.dir(root, ".")
	for len(l.dirLinks) > 0 {
		next := l.dirLinks[0]
		l.dirLinks = l.dirLinks[1:]
		if _, err := inside(root, filepath.Join(root, next)); err != nil {
			l.failed[next] = err
			continue
		}
		l.dir(root, next)
	}
	maps.DeleteFunc(l.failed, func(rel string, err error) bool {
		return rel != "." && vanished(filepath.Join(root, rel), err)
	})
	if l.overLimit() {
		l.failed["."] = refusedError(fmt.Sprintf("it has more than %d files and folders, "+
			"including those that are not configuration: move out what does not belong there", limit))
	}
	return l
}

// vanished reports whether err means that a path was deleted after its folder was listed. It returns
// false for a symlink that leads nowhere.
func vanished(path string, err error) bool {
	if !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	_, err = os.Lstat(path)
	return errors.Is(err, fs.ErrNotExist)
}

// dir lists one folder.
func (l *listing) dir(root, rel string) {
	path := filepath.Join(root, rel)
	info, err := os.Stat(path)
	if err != nil {
		l.failed[rel] = err
		return
	}
	if strings.Count(rel, string(filepath.Separator)) >= maxFolders {
		l.failed[rel] = refusedError(fmt.Sprintf("it is nested in more than %d folders: move it up", maxFolders))
		return
	}
	id := stampOf(info).id
	if first, again := l.paths[id]; again {
		l.repeats[rel] = config.Problem{Severity: feed.Warning, File: rel,
			Text: fmt.Sprintf("the symlink leads to the folder %s, which is read anyway: remove it", first)}
		return
	}
	l.paths[id] = rel
	entries, err := l.read(path)
	if err != nil {
		l.failed[rel] = err
		return
	}
	l.dirs[rel] = true
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return cmp.Compare(a.Name(), b.Name()) })
	for _, e := range entries {
		if l.overLimit() {
			return
		}
		if !hidden(e.Name()) {
			l.entry(root, filepath.Join(rel, e.Name()), e)
		}
	}
}

// read returns the entries of a folder, at most one more than the limit allows.
func (l *listing) read(path string) ([]fs.DirEntry, error) {
	d, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	entries, err := d.ReadDir(max(l.limit-l.entries, 0) + 1)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	l.entries += len(entries)
	return entries, errors.Join(err, d.Close())
}

func (l *listing) entry(root, rel string, e fs.DirEntry) {
	if e.IsDir() {
		l.dir(root, rel)
		return
	}
	link := e.Type()&fs.ModeSymlink != 0
	l.symlinks = l.symlinks || link
	if !link && !isConfig(rel) {
		return
	}
	info, err := os.Stat(filepath.Join(root, rel))
	switch {
	case err == nil && info.IsDir():
		l.dirLinks = append(l.dirLinks, rel)
	case err != nil && !isConfig(rel): // perhaps a folder that is not mounted now
		l.failed[rel] = err
	case !isConfig(rel):
	case err == nil:
		l.files[rel] = stampOf(info)
		if link {
			if target, err := filepath.EvalSymlinks(filepath.Join(root, rel)); err == nil {
				l.targets = append(l.targets, target)
			}
		}
	default:
		l.files[rel] = stamp{} // a dangling link, or it was deleted: reading it shows which
	}
}

// complete reports whether all folders were listed, except for those that are never read.
func (l *listing) complete() bool {
	for _, err := range l.failed {
		if refused := refusedError(""); !errors.As(err, &refused) {
			return false
		}
	}
	return true
}

func (l *listing) overLimit() bool { return l.entries > l.limit }

// unknown reports whether a file may exist unseen, because a folder on its path could not be
// listed.
func (l *listing) unknown(name string) bool {
	for dir := filepath.Dir(name); ; dir = filepath.Dir(dir) {
		if l.failed[dir] != nil {
			return true
		}
		if dir == "." {
			return false
		}
	}
}
