package filestore

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"
)

// event acts on one notification, or notes what is to be done later.
func (f *folder) event(e fsnotify.Event) {
	moved := f.movedFrom
	f.movedFrom = ""
	if e.Has(fsnotify.Rename) {
		f.movedFrom = e.Name
	}
	root := f.src.cfg.Dir
	for _, name := range slices.Sorted(maps.Keys(f.links[e.Name])) {
		f.changed(name, e, "")
	}
	rel, inFolder := within(root, e.Name)
	switch {
	case e.Name == root:
		f.rootChanged(e)
	case inFolder && f.files[rel] == nil && (f.overLimit || len(f.files) >= f.src.cfg.maxEntries):
		f.scanAt(time.Now().Add(rescanSoon)) // the scan says whether there is room for it
	case !inFolder || hidden(filepath.Dir(rel)):
	case hidden(filepath.Base(rel)):
		// Kubernetes and others change what visible symlinks mean by a hidden one.
		if e.Has(fsnotify.Create) && isLink(e.Name) {
			f.scanNow = true
		}
	case isConfig(rel) && !isDir(e.Name):
		f.changed(rel, e, moved)
	case e.Has(fsnotify.Create) && (isDir(e.Name) || isLink(e.Name)):
		f.scanNow = true
	case e.Has(fsnotify.Remove) || e.Has(fsnotify.Rename):
		if f.watch.gone(e.Name) || f.dirs[rel] {
			f.scanAt(time.Now().Add(f.src.cfg.Settle))
		}
	case e.Has(fsnotify.Chmod) && isDir(e.Name):
		f.scanNow = true
	}
}

// rootChanged acts on a change of the folder itself: it comes, goes, or is a symlink that leads elsewhere.
func (f *folder) rootChanged(e fsnotify.Event) {
	if e.Has(fsnotify.Remove) || e.Has(fsnotify.Rename) {
		f.watch.gone(e.Name)
		now := time.Now()
		if e.Has(fsnotify.Remove) && !f.absence.is() { // it may be filled anew bit by bit
			f.absence = absence{since: now}
		}
		f.scanAt(now.Add(f.src.cfg.Settle))
		return
	}
	f.scanNow = true
}

// changed acts on the change of one file. moved is the name that was moved away just before, if any.
func (f *folder) changed(name string, e fsnotify.Event, moved string) {
	now := time.Now()
	f.noticed(now)
	switch {
	case e.Has(fsnotify.Remove) || e.Has(fsnotify.Rename):
		f.pending.touch(name, true, now)
		f.index.leave(f.files[name])
		f.ready.remove(name)
	case e.Has(fsnotify.Create) && f.complete(name, e.Name, moved):
		f.ready.add(name)
		if from, ok := within(f.src.cfg.Dir, moved); ok && moved != "" && f.files[from] != nil {
			f.ready.add(from) // one file under a new name, in one batch
		}
	default:
		f.pending.touch(name, false, now)
		f.ready.remove(name)
	}
}

// complete says whether a file that has just come is all there: it was renamed into place, or its writer
// is done. Where the kernel does not tell about writers, a name that was moved away just before is
// taken for the other end of a rename.
func (f *folder) complete(name, path, moved string) bool {
	if info, err := os.Stat(path); err != nil || info.Size() == 0 {
		return false // the content comes yet
	}
	if done, ok := f.src.written(name); ok {
		return done
	}
	return moved != "" && moved != path
}

func isLink(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode()&fs.ModeSymlink != 0
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
