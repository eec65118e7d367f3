package filestore

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
)

// folder is what is known of all files. It belongs to the goroutine of Run.
type folder struct {
	src   *Source
	watch *watcher
	keep  *keeper

	files  map[string]*file
	owners owners
	links  map[string]map[string]bool // where symlinks end -> their names

	failed map[string]config.Problem // folders that cannot be read
	loops  map[string]config.Problem // symlinks that are not followed
	keepup error                     // why contents cannot be kept

	pending   pending
	scanNow   bool
	movedFrom string    // named by the notification before this one as moved away
	since     time.Time // when the first change that is not sent yet was noticed

	changedGroups map[string]bool
	said          map[string]map[saying]time.Time // the problems that were sent, by group, and since when they are
}

func newFolder(s *Source, w *watcher, k *keeper) *folder {
	return &folder{
		src: s, watch: w, keep: k,
		files: map[string]*file{}, owners: owners{}, links: map[string]map[string]bool{},
		pending:       pending{settle: s.cfg.Settle, due: map[string]time.Time{}, first: map[string]time.Time{}, removal: map[string]bool{}},
		changedGroups: map[string]bool{}, said: map[string]map[saying]time.Time{},
	}
}

// scanName stands for a scan among pending files.
const scanName = ""

// rootGroup is the group of problems that are not of one file.
const rootGroup = "."

// scanAt has the folder scanned at a time.
func (f *folder) scanAt(at time.Time) {
	if _, ok := f.pending.due[scanName]; !ok {
		f.pending.due[scanName], f.pending.first[scanName] = at, at
	}
}

// noticed notes when a change was.
func (f *folder) noticed(now time.Time) {
	if f.since.IsZero() {
		f.since = now
	}
}

// start reads everything for the first time, with what was kept of earlier contents at hand.
func (f *folder) start(ctx context.Context) error {
	kept, err := f.keep.load(ctx)
	if err != nil {
		f.keepup = err
	}
	l := f.scan()
	if err := l.failed["."]; err != nil && len(kept) == 0 {
		return fmt.Errorf("read the folder of configuration %s: %w; make it a folder that can be read, or name another one (setting files, or --files in development)", f.src.cfg.Dir, err)
	}
	now := time.Now()
	for name, record := range kept {
		f.files[name] = &file{name: name, known: record.known}
	}
	for name := range l.files {
		if f.files[name] == nil {
			f.files[name] = &file{name: name, known: now}
		}
	}
	f.fill(l, kept)
	return nil
}

// fill reads the files of a first scan, those first that were known first: of two that define one object
// it is the same as before that counts.
func (f *folder) fill(l *listing, kept map[string]record) {
	names := slices.SortedFunc(maps.Keys(f.files), func(a, b string) int {
		return cmp.Or(f.files[a].known.Compare(f.files[b].known), cmp.Compare(a, b))
	})
	readings := f.readings(slices.DeleteFunc(slices.Clone(names), func(n string) bool { _, there := l.files[n]; return !there }))
	for _, name := range names {
		r, there := readings[name]
		old, known := kept[name]
		switch {
		case there:
			if known && (r.err != nil || !clean(r.result)) {
				f.restore(f.files[name], old)
			}
			f.take(r, known && old.same(r))
		case l.unknown(name):
			f.restore(f.files[name], old)
			f.supply(f.files[name])
		default: // deleted while nobody looked
			delete(f.files, name)
			f.keep.put(name, nil)
		}
	}
}

// restore gives a file the content that was kept of it.
func (f *folder) restore(x *file, r record) {
	result := r.parse(x.name, f.src.name)
	x.objects, x.goodAt, x.asOf = result.Objects, r.asOf, r.asOf
	if len(result.Objects) == 0 && !clean(result) {
		f.src.cfg.Log.Warn("last good content of a file is not valid for this release", "file", x.name, "of", when(r.asOf))
	}
}

// scan lists the folder and takes note of the folders that cannot be read.
func (f *folder) scan() *listing {
	f.watch.err = nil
	// the folder's own coming and going shows in the one around it
	parent := filepath.Dir(f.src.cfg.Dir)
	if info, err := os.Stat(parent); err == nil {
		f.watch.add(parent, stampOf(info))
	}
	l := scan(f.src.cfg.Dir, f.watch.add)
	for dir := range f.watch.dirs {
		if rel, ok := within(f.src.cfg.Dir, dir); ok && !l.dirs[rel] && l.failed[rel] == nil && !f.linked(dir) {
			f.watch.remove(dir)
		}
	}
	f.failed = f.failures(l)
	f.loops = l.loops
	f.changedGroups[rootGroup] = true
	return l
}

// linked says that symlinks end in dir.
func (f *folder) linked(dir string) bool {
	for end := range f.links {
		if filepath.Dir(end) == dir {
			return true
		}
	}
	return false
}

// failures makes problems of the folders that cannot be read.
func (f *folder) failures(l *listing) map[string]config.Problem {
	out := make(map[string]config.Problem, len(l.failed))
	for dir, err := range l.failed {
		p := config.Problem{Severity: feed.Error, File: filepath.Join(f.src.cfg.Dir, dir)}
		p.Text = fmt.Sprintf("the folder cannot be read (%v): restore it, or make it readable", err)
		if len(f.files) > 0 {
			p.Stale = true
			p.Text += "; until then the last content of its files stays in use"
		}
		out[dir] = p
	}
	return out
}

// rescan compares the folder with what is known of it, and reads what differs.
func (f *folder) rescan() {
	f.pending.drop(scanName)
	l := f.scan()
	now := time.Now()
	var changed []string
	for name, s := range l.files {
		x := f.files[name]
		if x != nil && x.stamp == s && s != (stamp{}) {
			continue
		}
		if _, waiting := f.pending.due[name]; waiting {
			continue
		}
		if done, ok := written(filepath.Join(f.src.cfg.Dir, name)); ok && !done || !ok && now.Sub(s.modified) < f.src.cfg.Settle {
			f.pending.touch(name, false, now)
			continue
		}
		changed = append(changed, name)
	}
	for name := range f.files {
		if _, there := l.files[name]; !there && !l.unknown(name) && !f.pending.removal[name] {
			f.pending.touch(name, true, now)
		}
	}
	slices.Sort(changed)
	f.readAll(changed)
}

// settled reads the files that were left alone for long enough. One that a process still has open for
// writing waits on, but not for ever: some process may never close it.
func (f *folder) settled() {
	now := time.Now()
	var names []string
	for name, first := range f.pending.take(now) {
		if name == scanName {
			f.scanNow = true
			continue
		}
		if done, ok := written(filepath.Join(f.src.cfg.Dir, name)); ok && !done && now.Sub(first) < patience {
			f.pending.touch(name, false, now)
			f.pending.first[name] = first
			continue
		}
		names = append(names, name)
	}
	slices.Sort(names)
	f.readAll(names)
}

// patience is how long a file that is open for writing is left alone at most.
const patience = 2 * time.Second

// readAll reads files and takes in what they say.
func (f *folder) readAll(names []string) {
	for _, name := range names {
		f.pending.drop(name)
	}
	readings := f.readings(names)
	for _, name := range names {
		r := readings[name]
		switch {
		case errors.Is(r.err, errBusy):
			f.pending.touch(name, false, time.Now())
		case errors.Is(r.err, fs.ErrNotExist) && r.link == "" && !isLink(filepath.Join(f.src.cfg.Dir, name)):
			f.missing(name)
		default:
			f.take(r, false)
		}
	}
}

// missing drops a file that is not there, unless its folder is not there either.
func (f *folder) missing(name string) {
	if _, err := os.Stat(f.src.cfg.Dir); err != nil {
		f.scanNow = true
		return
	}
	x := f.files[name]
	if x == nil {
		return
	}
	delete(f.files, name)
	f.unlink(name)
	x.objects = nil
	f.supply(x)
	f.keep.put(name, nil)
	f.noticed(time.Now())
	f.src.cfg.Log.Info("file deleted", "folder", f.src.cfg.Dir, "file", name)
}

// readings reads files, several at once when there are several.
func (f *folder) readings(names []string) map[string]reading {
	out := make(map[string]reading, len(names))
	var mu sync.Mutex
	var wg sync.WaitGroup
	next := make(chan string)
	for range min(len(names), runtime.GOMAXPROCS(0)) {
		wg.Go(func() {
			for name := range next {
				r := f.src.read(name, f.digest(name))
				mu.Lock()
				out[name] = r
				mu.Unlock()
			}
		})
	}
	for _, name := range names {
		next <- name
	}
	close(next)
	wg.Wait()
	return out
}

// digest is that of a known file's content, nil when it is not known.
func (f *folder) digest(name string) *[sha256.Size]byte {
	if x := f.files[name]; x != nil && x.digest != ([sha256.Size]byte{}) {
		return &x.digest
	}
	return nil
}

// take brings a reading into what is known. keptAlready says that its content was kept before.
func (f *folder) take(r reading, keptAlready bool) {
	x := f.files[r.name]
	if x == nil {
		x = &file{name: r.name, known: r.at}
		f.files[r.name] = x
	}
	f.unlink(r.name)
	f.link(r)
	objects, issues, fresh := x.objects, x.issues, x.asOf.IsZero() || x.claims == nil
	x.take(r)
	sameObjects := slices.Equal(objects, x.objects)
	if !sameObjects || !slices.Equal(issues, x.issues) || fresh {
		f.noticed(r.at)
		f.supply(x)
	}
	// equal objects are kept already, as they were written when they were good
	if r.err == nil && !keptAlready && !sameObjects {
		f.keep.put(r.name, x.record(r))
	}
}

// link watches the place where a symlink ends.
func (f *folder) link(r reading) {
	if r.link == "" {
		return
	}
	if f.links[r.link] == nil {
		f.links[r.link] = map[string]bool{}
	}
	f.links[r.link][r.name] = true
	dir := filepath.Dir(r.link)
	if info, err := os.Stat(dir); err == nil {
		f.watch.add(dir, stampOf(info))
	}
}

func (f *folder) unlink(name string) {
	for end, names := range f.links {
		delete(names, name)
		if len(names) == 0 {
			delete(f.links, end)
		}
	}
}

// supply brings the owners up to date and notes which groups have changed.
func (f *folder) supply(x *file) {
	f.changedGroups[x.name] = true
	for _, other := range f.owners.set(x) {
		f.changedGroups[other] = true
	}
}
