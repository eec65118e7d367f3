package filestore

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/ashore-mesh/ashore/config"
)

// A file that is moved or renamed while it is broken has no good version under its new name. What is in use of it
// follows: to a new file with the same content, or with the objects that are broken.

// inherit gives a new file that is not in order what is in use of files that went away.
func (f *folder) inherit(x *file, r reading) {
	if r.err != nil || clean(r.result) {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(f.files)) {
		from := f.files[name]
		if from == x || len(from.objects) == 0 || f.there(name) {
			continue
		}
		for _, o := range from.objects {
			if from.seen == r.digest || slices.Contains(r.result.Broken, o.Key) {
				x.adopt(o, from.goodAt)
			}
		}
	}
}

// bequeath gives what is in use of a file that went away to those that hold what it held at last, and reads them again.
func (f *folder) bequeath(from *file) {
	if len(from.held) == 0 {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(f.files)) {
		x := f.files[name]
		if x.seen != from.seen {
			continue
		}
		for _, o := range from.objects {
			if !slices.ContainsFunc(x.objects, func(has *config.Object) bool { return has.Key == o.Key }) {
				x.adopt(o, from.goodAt)
			}
		}
		f.supply(x)
		f.keep.put(name, x.standIn())
		if r := f.src.read(name, nil); r.err == nil {
			f.take(r, true)
		} else {
			f.pending.touch(name, false, time.Now())
		}
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

// there says whether something of that name is in the folder.
func (f *folder) there(name string) bool {
	_, err := os.Lstat(filepath.Join(f.src.cfg.Dir, name))
	return err == nil
}
