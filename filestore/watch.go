package filestore

import (
	"os"
	"path/filepath"

	"github.com/fsnotify/fsnotify"
)

// watcher is told of changes by the kernel. Without one (the kernel's limits may forbid it) only scans
// notice changes.
type watcher struct {
	w    *fsnotify.Watcher
	err  error            // why some folder is not watched
	dirs map[string]stamp // what is watched; a folder that was replaced is watched anew
}

// eventBuffer is how many notifications are taken in at once.
const eventBuffer = 4096

func newWatcher() *watcher {
	w, err := fsnotify.NewBufferedWatcher(eventBuffer)
	if err != nil {
		w = nil
	}
	return &watcher{w: w, err: err, dirs: map[string]stamp{}}
}

func (w *watcher) close() {
	if w.w != nil {
		w.w.Close() //nolint:errcheck // closes descriptors that are only read
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

// add watches a folder that is in the state in.
func (w *watcher) add(dir string, in stamp) {
	if w.w == nil {
		return
	}
	if had, ok := w.dirs[dir]; ok {
		if had.device == in.device && had.inode == in.inode {
			return
		}
		w.remove(dir)
	}
	if err := w.w.Add(dir); err != nil {
		w.err = err
		return
	}
	w.dirs[dir] = in
}

// replaced says that another folder stands where one was watched: something was mounted or unmounted there, of which
// the kernel tells nobody.
func (w *watcher) replaced() bool {
	for dir, had := range w.dirs {
		if info, err := os.Stat(dir); err == nil {
			if is := stampOf(info); is.device != had.device || is.inode != had.inode {
				return true
			}
		}
	}
	return false
}

// remove forgets a folder. The kernel may have done so already, when it was deleted.
func (w *watcher) remove(dir string) {
	if _, ok := w.dirs[dir]; ok {
		delete(w.dirs, dir)
		_ = w.w.Remove(dir)
	}
}

// gone notes that the kernel says that dir itself was deleted or moved away.
func (w *watcher) gone(dir string) bool {
	_, ok := w.dirs[dir]
	w.remove(dir)
	return ok
}

// within returns the path of a notified name within root.
func within(root, name string) (string, bool) {
	rel, err := filepath.Rel(root, name)
	if err != nil || rel == "." || rel == ".." || len(rel) > 2 && rel[:3] == ".."+string(filepath.Separator) {
		return "", false
	}
	return rel, true
}
