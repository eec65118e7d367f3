package filestore

import (
	"os"
	"path/filepath"

	"github.com/fsnotify/fsnotify"
)

// watcher is told by the kernel when something in a folder changes. Without one, because the kernel's limits forbid it, the
// periodic scans find changes.
type watcher struct {
	w    *fsnotify.Watcher
	dirs map[string][2]uint64 // device and inode of each watched folder
}

// eventBuffer is how many notifications are buffered.
const eventBuffer = 4096

func newWatcher() *watcher {
	w, err := fsnotify.NewBufferedWatcher(eventBuffer)
	if err != nil {
		w = nil
	}
	return &watcher{w: w, dirs: map[string][2]uint64{}}
}

func (w *watcher) close() {
	if w.w != nil {
		_ = w.w.Close() // it only reads
	}
}

func (w *watcher) events() <-chan fsnotify.Event {
	if w.w == nil {
		return nil
	}
	return w.w.Events
}

func (w *watcher) errors() <-chan error {
	if w.w == nil {
		return nil
	}
	return w.w.Errors
}

// replace watches the folders of a listing, the places where its symlinks end, and the folder that contains root, and no others.
func (w *watcher) replace(root string, l *listing) {
	if w.w == nil {
		return
	}
	wanted := map[string][2]uint64{}
	add := func(dir string) {
		if info, err := os.Stat(dir); err == nil {
			s := stampOf(info)
			wanted[dir] = [2]uint64{s.device, s.inode}
		}
	}
	add(filepath.Dir(root))
	for rel := range l.dirs {
		add(filepath.Join(root, rel))
	}
	for _, end := range l.ends {
		add(filepath.Dir(end))
	}
	for dir, id := range w.dirs {
		if wanted[dir] != id {
			delete(w.dirs, dir)
			_ = w.w.Remove(dir) // the kernel may have done so
		}
	}
	for dir, id := range wanted {
		if _, watched := w.dirs[dir]; !watched && w.w.Add(dir) == nil {
			w.dirs[dir] = id
		}
	}
}
