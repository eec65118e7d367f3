package filestore

import (
	"crypto/sha256"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
)

// folder is the state of a Source: the files it has read, and the problems it has sent. It belongs to
// the goroutine of Source.Run.
type folder struct {
	src   *Source
	watch *watcher
	send  func(feed.Batch[*config.Object]) bool // false: the source is stopped

	files   map[string]known  // by path within the folder
	folders map[string]string // folders with a problem, by path, and the problem's text
	latest  *listing          // updated by restat; nil before the first scan
	scanned time.Time         // when the latest scan ended
	took    time.Duration     // by the latest scan
	full    bool              // the Full batch was sent
	down    string            // why the folder could not be read, as it was sent; empty: it could
}

// known is what was read of a file.
type known struct {
	stamp  stamp // zero: the file must be read again
	digest [sha256.Size]byte
	err    string // why it could not be read; empty: it could
}

// reading is the outcome of reading one file.
type reading struct {
	name  string
	known known
	// unchanged means that the content is what it was; update is empty then.
	unchanged bool
	update    feed.Update[*config.Object]
}

// progressEvery is after how many files the source reports how many remain.
const progressEvery = 1000

func newFolder(s *Source, w *watcher, send func(feed.Batch[*config.Object]) bool) *folder {
	return &folder{src: s, watch: w, send: send, files: map[string]known{}, folders: map[string]string{}}
}

// untilScan returns the time until the next periodic scan is due.
func (f *folder) untilScan() time.Duration {
	return time.Until(f.scanned.Add(max(rescanInterval, rescanPause*f.took)))
}

// scan lists the folder and watches what it found.
func (f *folder) scan() {
	began := time.Now()
	f.latest = f.src.scan()
	f.scanned = time.Now()
	f.took = f.scanned.Sub(began)
	if f.watch.replace(f.src.cfg.Dir, f.latest) { // changes before a new watch began were not reported
		f.latest = f.src.scan()
		f.watch.replace(f.src.cfg.Dir, f.latest)
	}
}

// restat updates the latest listing after a change of these paths. It returns false if a scan is
// needed, because more may have changed than the content of regular files that are listed.
func (f *folder) restat(changed map[string]bool) bool {
	if changed == nil || !f.full || f.down != "" || f.untilScan() <= 0 || f.latest.symlinks {
		return false
	}
	for path := range changed {
		rel, err := filepath.Rel(f.src.cfg.Dir, path)
		if err == nil && rel != "." && hidden(filepath.Base(rel)) {
			continue // such as a temporary file that was renamed
		}
		if _, listed := f.latest.files[rel]; err != nil || !listed {
			return false
		}
		info, err := os.Lstat(path)
		if err != nil || !info.Mode().IsRegular() {
			return false
		}
		f.latest.files[rel] = stampOf(info)
	}
	return true
}

// read finds and reads the files that changed, and sends what is new. since is when the change was
// noticed, and changed lists the paths that changed; nil means that all may have.
func (f *folder) read(since time.Time, changed map[string]bool) {
	if !f.restat(changed) {
		f.scan()
	}
	l := f.latest
	if err := l.failed["."]; err != nil {
		f.sendDown(err)
		return
	}
	full := !f.full && l.complete()
	if full { // the Full batch names all groups
		clear(f.files)
		clear(f.folders)
	}
	b := feed.Batch[*config.Object]{Source: f.src.name, Full: full, Since: since, Updates: f.folderUpdates(l)}
	var deleted []string
	for name := range f.files {
		if _, there := l.files[name]; !there && !l.unknown(name) {
			deleted = append(deleted, name)
		}
	}
	slices.Sort(deleted)
	for _, name := range deleted {
		delete(f.files, name)
		b.Updates = append(b.Updates, feed.Update[*config.Object]{Group: name})
	}
	updates, ok := f.readFiles(l)
	if !ok {
		return
	}
	b.Updates = append(b.Updates, updates...)
	if (b.Full || len(b.Updates) > 0 || f.down != "") && f.send(b) {
		f.full, f.down = f.full || full, ""
	}
}

// sendDown reports that the folder cannot be read, once.
func (f *folder) sendDown(err error) {
	down := &downError{f.src.cfg.Dir, err}
	if f.down != down.Error() && f.send(feed.Batch[*config.Object]{Source: f.src.name, Down: down}) {
		f.down = down.Error()
	}
}

// folderUpdates returns a group for each folder and symlink below the root that has, or had, a
// problem. The group "." has that of the watcher.
func (f *folder) folderUpdates(l *listing) (out []feed.Update[*config.Object]) {
	now := map[string]config.Problem{}
	for rel, err := range l.failed {
		now[rel] = folderProblem(rel, err)
	}
	maps.Copy(now, l.repeats)
	if err := f.watch.err; err != nil {
		now["."] = config.Problem{Severity: feed.Warning, Text: err.Error()}
		if f.folders["."] == "" {
			f.src.cfg.Log.Warn("the kernel does not report all changes of the folder", "folder", f.src.cfg.Dir, "error", err)
		}
	}
	for rel, p := range now {
		if f.folders[rel] != p.Text {
			f.folders[rel] = p.Text
			out = append(out, feed.Update[*config.Object]{
				Group: rel, Unreadable: l.failed[rel] != nil, Problems: []config.Problem{p},
			})
		}
	}
	for rel := range f.folders {
		if _, still := now[rel]; !still {
			delete(f.folders, rel)
			out = append(out, feed.Update[*config.Object]{Group: rel})
		}
	}
	return out
}

// readFiles reads the files whose stamps changed; false: the source is stopped.
func (f *folder) readFiles(l *listing) (updates []feed.Update[*config.Object], ok bool) {
	var names []string
	for name, s := range l.files {
		if was, had := f.files[name]; !had || s == (stamp{}) || was.stamp != s {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for len(names) > 0 {
		if len(names) > progressEvery && !f.send(feed.Batch[*config.Object]{Source: f.src.name, Reading: len(names)}) {
			return nil, false
		}
		some := names[:min(progressEvery, len(names))]
		names = names[len(some):]
		readings := make([]reading, len(some))
		var group errgroup.Group
		group.SetLimit(runtime.GOMAXPROCS(0))
		for i, name := range some {
			was, had := f.files[name]
			group.Go(func() error {
				readings[i] = f.src.read(name, was, had)
				return nil
			})
		}
		_ = group.Wait() // the functions return nil
		for _, r := range readings {
			f.files[r.name] = r.known
			if !r.unchanged {
				updates = append(updates, r.update)
			}
		}
	}
	return updates, true
}

// read reads and parses one file. It is called from several goroutines.
func (s *Source) read(name string, was known, had bool) reading {
	r := reading{name: name, update: feed.Update[*config.Object]{Group: name}}
	data, stamp, err := s.content(name)
	// A later scan reads a file that is being written, and removes one that was deleted.
	if errors.Is(err, errBusy) && had || vanished(filepath.Join(s.cfg.Dir, name), err) {
		r.known, r.unchanged = known{digest: was.digest, err: was.err}, true
		return r
	}
	if err != nil {
		problem := fileProblem(name, err)
		r.known.err, r.unchanged = problem.Text, had && was.err == problem.Text
		r.update.Unreadable, r.update.Problems = true, []config.Problem{problem}
		return r
	}
	r.known = known{stamp: stamp, digest: sha256.Sum256(data)}
	if had && was.err == "" && was.digest == r.known.digest {
		r.unchanged = true
		return r
	}
	if empty(data) {
		r.update.Unreadable, r.update.Problems = true, emptyResult(name, emptyInSource).Problems
		return r
	}
	result := config.Parse(name, data)
	r.update.Problems = result.Problems
	if result.Malformed || result.Unread && len(result.Objects)+len(result.Broken) == 0 {
		r.update.Unreadable = true
		return r
	}
	r.update.Items = result.Objects
	for _, o := range result.Objects {
		o.Origin.Source = s.name
	}
	for _, k := range result.Broken {
		r.update.Invalid = append(r.update.Invalid, k.String())
	}
	return r
}

// content reads a file of the folder.
func (s *Source) content(name string) ([]byte, stamp, error) {
	f, err := s.open(name)
	if err != nil {
		return nil, stamp{}, err
	}
	return readFile(f)
}

// downError is why the folder itself cannot be read.
type downError struct {
	dir string
	err error
}

func (e *downError) Error() string {
	if refused := refusedError(""); errors.As(e.err, &refused) {
		return "the folder " + e.dir + " is not read: " + refused.Error()
	}
	return "the folder " + e.dir + " cannot be read (" + reason(e.err) + "): create or mount it, and make it readable"
}

func (e *downError) Unwrap() error { return e.err }
