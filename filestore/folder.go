package filestore

import (
	"maps"
	"os"
	"slices"
	"time"

	"github.com/ashore-mesh/ashore/config"
)

// folder is what is known of all files. It belongs to the goroutine of Run.
type folder struct {
	src   *Source
	watch *watcher
	keep  *keeper

	files      map[string]*file
	owners     owners
	gone       []departed                 // what changes took away lately
	missed     map[string]time.Time       // when known files that are away were first missed
	missedKept map[string]time.Time       // what is kept of that
	goneKept   map[string][]departed      // what is kept of gone, by file
	adopted    map[string]bool            // files of goneKept of which something is in use in another file since
	lately     time.Time                  // when something was last changed, by somebody or at a start by what was kept
	latelyKept time.Time                  // what is kept of that
	links      map[string]map[string]bool // where symlinks end -> their names
	index      index

	dirs   map[string]bool           // folders that the last scan read
	failed map[string]config.Problem // folders that cannot be read
	// overLimit says that there are more files than are read: no new one is.
	overLimit bool
	retrySoon bool                      // a folder could not be read, or overLimit: scan again soon
	loops     map[string]config.Problem // symlinks that are not followed
	keepup    error                     // why contents cannot be kept
	// unloaded is why what was kept before the start, of no file by itself, cannot be read.
	unloaded error
	absence  absence
	awaited  bool      // there was nothing to read at the start, and it was waited for
	away     time.Time // since when the folder is out of reach, from before a restart too; zero: it is not

	awaitedSince time.Time // since when it was

	ready         nameQueue // files to be read now
	pending       pending
	scanNow       bool
	scanTook      time.Duration // by the last scan, without reading what it found
	newTombstones bool          // something is in gone that no file was asked to adopt yet
	progress      progress
	reading       bool      // progress was told, and its end was not
	movedFrom     string    // named by the notification before this one as moved away
	since         time.Time // when the first change that is not sent yet was noticed

	changedGroups map[string]bool
	said          map[string]map[saying]time.Time // the problems that were sent, by group, and since when they are
}

func newFolder(s *Source, w *watcher, k *keeper) *folder {
	return &folder{
		src: s, watch: w, keep: k,
		files: map[string]*file{}, owners: owners{}, missed: map[string]time.Time{},
		goneKept: map[string][]departed{}, adopted: map[string]bool{},
		links: map[string]map[string]bool{}, index: newIndex(),
		pending:       pending{settle: s.cfg.Settle, due: map[string]time.Time{}, first: map[string]time.Time{}, removal: map[string]bool{}},
		changedGroups: map[string]bool{}, said: map[string]map[saying]time.Time{},
	}
}

// rootGroup is the group of problems that are not of one file.
const rootGroup = "."

// scanAt has the folder scanned at a time.
func (f *folder) scanAt(at time.Time) {
	if _, ok := f.pending.due[scanName]; !ok {
		f.pending.first[scanName] = at
		f.pending.at(scanName, at)
	}
}

// noticed notes when a change was.
func (f *folder) noticed(now time.Time) {
	if f.since.IsZero() || now.Before(f.since) {
		f.since = now
	}
}

// take brings a reading into what is known. keptAlready says that its content was kept before.
func (f *folder) take(r reading, keptAlready bool) {
	x := f.files[r.name]
	if x == nil {
		x = &file{name: r.name, known: r.at}
		f.files[r.name] = x
	}
	delete(f.missed, r.name)
	f.link(x, r.link)
	objects, issues, seen, fresh := x.objects, x.issues, x.seen, x.claims == nil
	guests, rest, kept, edited := x.guests, len(x.rest), x.kept, x.edited
	clash, clashed := f.clashes(x, r.result.Objects), x.clashing
	f.inherit(x, r, clash)
	x.take(r, clash, func(k config.Key) bool { return f.defined(k, x, true) })
	lately := x.lately
	x.lately = lately && r.err != nil
	delete(f.index.missing, x.name)
	f.index.update(x)
	if x.edited != edited {
		f.lately = x.edited
	}
	if kept != x.kept {
		f.changedGroups[x.name] = true
	}
	sameObjects := slices.Equal(objects, x.objects)
	if !sameObjects || !slices.Equal(issues, x.issues) || fresh || rest != len(x.rest) {
		f.noticed(r.at)
		f.supply(x)
	}
	// equal objects are kept already, as they were written when they were good; but not what the file is now
	if r.err == nil && !keptAlready && (!sameObjects || x.clashing != clashed || rest != len(x.rest) || lately || !r.same && x.seen != seen && !clean(r.result)) {
		f.keep.put(r.name, f.record(x, r))
	}
	if !sameObjects {
		f.depart(x, without(objects, x.objects, guests))
	}
}

// without are the objects that are not among those after, and were no guests.
func without(before, after []*config.Object, guests map[config.Key]config.Key) []*config.Object {
	stay := keysOf(after)
	return slices.DeleteFunc(slices.Clone(before), func(o *config.Object) bool { _, guest := guests[o.Key]; return guest || stay[o.Key] })
}

// missing drops files that are not there. Where the folder is not there either, or nothing is left in it, a
// scan has to say what that means.
func (f *folder) missing(names []string) {
	if len(names) == 0 || f.absence.is() {
		return
	}
	if _, err := os.Stat(f.src.cfg.Dir); err != nil || f.last(names) {
		f.scanNow = true
		return
	}
	f.drop(names...)
}

// drop forgets files that were deleted.
func (f *folder) drop(names ...string) {
	byHash := f.filesByHash(names)
	for _, name := range names {
		x := f.files[name]
		if x == nil {
			continue
		}
		f.lately = time.Now()
		f.noticed(f.lately)
		f.miss([]string{name}, f.lately)
		delete(f.files, name)
		f.unlink(x)
		f.index.drop(name)
		f.bequeath(x, byHash)
		objects := x.objects
		x.objects = nil
		f.supply(x)
		f.keep.put(name, nil)
		f.depart(x, objects)
		f.src.cfg.Log.Info("file deleted", "folder", f.src.cfg.Dir, "file", name)
	}
}

// supply brings the owners up to date and notes which groups have changed.
func (f *folder) supply(x *file) {
	f.changedGroups[x.name] = true
	if f.files[x.name] == x {
		f.index.update(x)
	}
	f.owners.set(x, f.index.claimed)
	f.dismiss(x)
}

// markChangedClaims notes the files for which something has changed because others define the same
// objects.
func (f *folder) markChangedClaims() {
	claimed := slices.Collect(maps.Keys(f.index.claimed))
	clear(f.index.claimed)
	for _, k := range claimed {
		for _, c := range f.owners[k] {
			f.changedGroups[c.file] = true
			f.reconsider(c.file)
		}
	}
}
