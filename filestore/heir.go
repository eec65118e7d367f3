package filestore

import (
	"crypto/sha256"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/ashore-mesh/ashore/config"
)

// A file that is moved or renamed while it is broken has no good version under its new name. What is in use of it
// follows: to a new file with the same content, or with the objects that are broken, or that refuses what may be them.

// inherit gives a file that is not in order what it may mean of what is in use of files that went away, and of what
// changes took away from others.
func (f *folder) inherit(x *file, r reading, clash bool) {
	if r.err != nil || r.same || clean(r.result) && !clash {
		return
	}
	f.forget()
	m := x.meaning(r)
	from := slices.DeleteFunc(slices.Clone(f.gone), func(d departed) bool { return f.defined(d.object.Key, x, false) })
	for _, name := range slices.Sorted(maps.Keys(f.index.missing)) {
		away := f.files[name]
		whole := x.claims == nil && len(x.objects) == 0 && away.seen == r.digest
		if away == x || !whole && !slices.ContainsFunc(away.objects, m.perhaps) || f.there(name) {
			continue
		}
		for _, o := range away.objects {
			if f.defined(o.Key, x, false) {
				continue
			}
			from = append(from, departed{object: o, goodAt: away.goodAt, whole: whole && !away.isGuest(o.Key)})
		}
	}
	f.adopt(x, m, from)
}

// filesByHash are the files by what they hold, sorted; nil when nothing needs them to take one of
// names away.
func (f *folder) filesByHash(names []string) map[[sha256.Size]byte][]string {
	if !slices.ContainsFunc(names, func(name string) bool { x := f.files[name]; return x != nil && len(x.held) > 0 }) {
		return nil
	}
	out := map[[sha256.Size]byte][]string{}
	for _, name := range slices.Sorted(maps.Keys(f.files)) {
		seen := f.files[name].seen
		out[seen] = append(out[seen], name)
	}
	return out
}

// bequeath gives what is in use of a file that went away to those that hold what it held at last,
// and reads them again.
func (f *folder) bequeath(from *file, byHash map[[sha256.Size]byte][]string) {
	if len(from.held) == 0 {
		return
	}
	for _, name := range byHash[from.seen] {
		x := f.files[name]
		if x == nil || x.seen != from.seen {
			continue
		}
		known := keysOf(x.objects)
		for _, o := range from.objects {
			if known[o.Key] {
				continue
			}
			x.adopt(o, from.goodAt)
			if from.isGuest(o.Key) {
				x.invite(o.Key)
			}
		}
		f.again(x)
	}
}

// adopt takes in an object of another file, which was good at a time.
func (f *file) adopt(o *config.Object, goodAt time.Time) {
	moved := *o
	moved.Origin.File = f.name
	f.objects = append(f.objects, &moved)
	if f.goodAt.IsZero() || goodAt.Before(f.goodAt) {
		f.goodAt = goodAt
	}
}

// invite marks an object as one that the file does not name.
func (f *file) invite(k config.Key) {
	f.guests = maps.Clone(f.guests)
	if f.guests == nil {
		f.guests = map[config.Key]config.Key{}
	}
	f.guests[k] = config.Key{}
}

// there says whether something of that name is in the folder.
func (f *folder) there(name string) bool {
	_, err := os.Lstat(filepath.Join(f.src.cfg.Dir, name))
	return err == nil
}
