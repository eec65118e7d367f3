package filestore

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/fsnotify/fsnotify"
)

// watcher gets notifications from the kernel when something in a folder changes. When the limits of
// the kernel forbid a watch, the periodic scans find the changes.
type watcher struct {
	w    *fsnotify.Watcher // nil: there are no notifications
	dirs map[string]fileID // the folders that are watched
	root string            // the folder of configuration, if of its parent's entries only this one matters; else empty
	err  error             // why changes of some folders are not reported; nil: those of all are

	add func(dir string) error // watches a folder; tests replace it
}

// eventBuffer is how many notifications are buffered.
const eventBuffer = 4096

func newWatcher() *watcher {
	w, err := fsnotify.NewBufferedWatcher(eventBuffer)
	if err != nil {
		return &watcher{err: limitError("fs.inotify.max_user_instances", err)}
	}
	return &watcher{w: w, dirs: map[string]fileID{}, add: w.Add}
}

// limitError says that notifications are missing because of a limit of the kernel.
func limitError(sysctl string, err error) error {
	return fmt.Errorf("changes can take %s or longer to be found, because the kernel does not report them (%w): raise %s "+
		"with sysctl, and restart", rescanInterval, err, sysctl)
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

// concerns reports whether an event may be about configuration, rather than another file in the
// parent of the folder.
func (w *watcher) concerns(e fsnotify.Event) bool {
	return w.root == "" || e.Name == w.root || filepath.Dir(e.Name) != filepath.Dir(w.root)
}

func (w *watcher) errors() <-chan error {
	if w.w == nil {
		return nil
	}
	return w.w.Errors
}

// replace watches the folders of a listing, the folders where its symlinks end, and the parent of
// root, and no others. It reports whether it began to watch any.
func (w *watcher) replace(root string, l *listing) (began bool) {
	if w.w == nil {
		return false
	}
	wanted := watchable(root, l)
	w.root = root
	if slices.ContainsFunc(l.targets, func(t string) bool { return filepath.Dir(t) == filepath.Dir(root) }) {
		w.root = ""
	}
	watched := map[string]bool{} // a watch ends when its folder is deleted, even if a new one takes its inode
	for _, dir := range w.w.WatchList() {
		watched[dir] = true
	}
	for dir, id := range w.dirs {
		if wanted[dir] != id || !watched[dir] {
			delete(w.dirs, dir)
			_ = w.w.Remove(dir) // the kernel may have done so
		}
	}
	w.err = nil
	for dir, id := range wanted {
		if _, ok := w.dirs[dir]; ok {
			continue
		}
		switch err := w.add(dir); {
		case err == nil:
			w.dirs[dir] = id
			began = true
		case errors.Is(err, syscall.ENOSPC): // a folder that cannot be read has a problem of its own
			w.err = limitError("fs.inotify.max_user_watches", err)
		}
	}
	return began
}

// watchable returns the folders to watch, each once: fsnotify confuses two paths of one folder.
func watchable(root string, l *listing) map[string]fileID {
	dirs := []string{filepath.Dir(root)}
	for _, rel := range slices.Sorted(maps.Keys(l.dirs)) {
		dirs = append(dirs, filepath.Join(root, rel))
	}
	for _, target := range l.targets {
		dirs = append(dirs, filepath.Dir(target))
	}
	out, seen := map[string]fileID{}, map[fileID]bool{}
	for _, dir := range dirs {
		info, err := os.Stat(dir)
		if err != nil {
			continue
		}
		if id := stampOf(info).id; !seen[id] {
			seen[id] = true
			out[dir] = id
		}
	}
	return out
}
