package filestore

import (
	"maps"
	"slices"
	"time"

	"github.com/ashore-mesh/ashore/config"
)

// departed is an object that a change took away from a file.
type departed struct {
	object *config.Object
	file   string    // where it stood
	from   string    // the same; empty when that was deleted
	goodAt time.Time // when it was read
	at     time.Time // when it went; zero: its file is away, and not forgotten yet
	whole  bool      // all of that file is in the one that asks
}

// meaning is which objects a file that is not in order may mean besides those that it gives.
type meaning struct {
	fresh []config.Key // refused, and there is no last good version here
	all   bool         // anything
}

func (m meaning) exactly(o *config.Object) bool { return slices.Contains(m.fresh, o.Key) }

func (m meaning) perhaps(o *config.Object) bool { return m.all || m.exactly(o) }

// meaning is that of a reading. Content that is not new means nothing that it did not mean before, unless what went while nobody
// looked is one change with it.
func (f *file) meaning(r reading) meaning {
	return meaning{fresh: newcomers(r.result, f.objects), all: (f.seen != r.digest || f.lately) && !r.blank}
}

// oneChange is how far apart in time the parts of one change are at most: a rename, an editor's save or a checkout of a
// few files is done within it. It is short because a removal that has been in force for longer is meant, and what was
// allowed until then must not come back on account of a slip in something else.
const oneChange = time.Second

// withNow says that what happened at a time is one change with what happens now. So is what was not sent yet, however
// long the reading of many files takes: it was never in force.
func (f *folder) withNow(at time.Time) bool {
	return time.Since(at) <= oneChange || !f.since.IsZero() && !at.Before(f.since)
}

// recent says that a file was changed so lately that it is one change with what happens now.
func (f *folder) recent(x *file) bool { return !x.edited.IsZero() && f.withNow(x.edited) }

// forget lets go of the objects that departed before that.
func (f *folder) forget() {
	f.gone = slices.DeleteFunc(f.gone, func(d departed) bool { return !f.withNow(d.at) })
}

// depart is that objects are in a file no more, which does not refuse them. Another file that means them adopts them;
// one may yet come.
func (f *folder) depart(from *file, objects []*config.Object) {
	now, name := time.Now(), from.name
	if f.files[name] != from {
		name = ""
	}
	for _, o := range objects {
		if !f.defined(o.Key, from, false) {
			f.gone = append(f.gone, departed{object: o, file: from.name, from: name, goodAt: from.goodAt, at: now})
			f.newTombstones = true
		}
	}
}

// assignTombstones gives what departed since the last batch to the files that mean it.
func (f *folder) assignTombstones() {
	if !f.newTombstones {
		return
	}
	f.newTombstones = false
	f.forget()
	for _, name := range slices.Sorted(maps.Keys(f.index.wrong)) {
		x := f.files[name]
		m := meaning{fresh: x.fresh, all: f.recent(x)}
		if !m.all && len(m.fresh) == 0 {
			continue
		}
		from := slices.DeleteFunc(slices.Clone(f.gone), func(d departed) bool { return f.defined(d.object.Key, x, false) })
		if f.adopt(x, m, from) {
			f.again(x)
		}
	}
}

// again reads a file to which objects were added, and is in order or not as before.
func (f *folder) again(x *file) {
	f.supply(x)
	f.keep.put(x.name, f.standIn(x))
	if r := f.src.read(x.name, nil); r.err == nil {
		f.take(r, true)
	} else {
		f.pending.touch(x.name, false, time.Now())
	}
}

// adopt gives a file what it means of the departed, and says whether there is any. Those that it certainly means
// come first: they tell what else it may mean.
func (f *folder) adopt(x *file, m meaning, from []departed) (any bool) {
	known := keysOf(x.objects)
	for _, certain := range []bool{true, false} {
		for _, d := range from {
			sure := d.whole || m.exactly(d.object)
			if d.from == x.name || sure != certain || !sure && !m.perhaps(d.object) || known[d.object.Key] {
				continue
			}
			any, known[d.object.Key] = true, true
			x.adopt(d.object, d.goodAt)
			if !sure {
				x.invite(d.object.Key)
			}
		}
		m.fresh = slices.DeleteFunc(slices.Clone(m.fresh), func(k config.Key) bool { return known[k] })
	}
	f.gone = slices.DeleteFunc(f.gone, func(d departed) bool {
		goes := d.from != x.name && known[d.object.Key]
		if goes {
			f.adopted[d.file] = true
		}
		return goes
	})
	return any
}

// defined says that a file that is there, other than one, defines an object of its own; lately: that it was changed so
// lately that the object may have been moved to it.
func (f *folder) defined(k config.Key, besides *file, lately bool) bool {
	return slices.ContainsFunc(f.owners[k], func(c claim) bool {
		x := f.files[c.file]
		return x != nil && x != besides && !x.isGuest(k) && (!lately || f.recent(x)) && f.there(c.file)
	})
}

// wentFrom are the objects that departed from a file lately.
func (f *folder) wentFrom(name string) (out []*config.Object) {
	for _, d := range f.gone {
		if d.file == name {
			out = append(out, d.object)
		}
	}
	return out
}
