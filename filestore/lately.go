package filestore

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// The end may come in the middle of a change. What was changed less than one change before it is therefore, at the next start, as
// what was changed while nobody looked: the rest of the change may have come then. What is on the disk of that is what is known of it
// here, so it is gone from there too once the change is over: the loop looks every second. That does not wait for room on the disk for
// something else: what went days ago would count as what went just now.

// lastChange is what is kept of the change in whose middle the end came; the zero value: it came in none.
type lastChange struct {
	at   time.Time         // when something was last changed
	gone map[string]record // what went with it, by the file where it stood
}

// lastOf is that of what was kept.
func lastOf(kept map[string]record) lastChange {
	last := lastChange{at: kept[latelyName].asOf, gone: map[string]record{}}
	for name, r := range kept {
		if file, ok := strings.CutPrefix(name, goneFolder); ok {
			last.gone[file] = r
		}
	}
	return last
}

// with says that a file that was edited at a time is part of the change.
func (l lastChange) with(edited time.Time) bool {
	return !l.at.IsZero() && !edited.IsZero() && l.at.Sub(edited) <= oneChange
}

// recall notes what went shortly before the end, as if it had gone while nobody looked. kept are the files that there were then.
func (f *folder) recall(last lastChange, kept map[string]record) {
	now := time.Now()
	if f.latelyKept = last.at; !last.at.IsZero() {
		f.lately = now
	}
	for _, name := range slices.Sorted(maps.Keys(last.gone)) {
		r, went := last.gone[name], []departed{}
		objects, _ := r.readable(name, f.src.name)
		for _, o := range objects {
			d := departed{object: o, file: name, goodAt: r.asOf, at: now}
			if _, stayed := kept[name]; stayed {
				d.from = name
			}
			went = append(went, d)
		}
		f.gone, f.goneKept[name] = append(f.gone, went...), went
		if f.changedGroups[name] = true; f.files[name] == nil {
			f.missed[name] = r.edited
		}
	}
}

// keepLately keeps over a restart what went lately, and when something was changed lately.
func (f *folder) keepLately() {
	f.keepGone()
	at := f.lately
	if !f.withNow(at) {
		at = time.Time{}
	}
	switch {
	case at.Equal(f.latelyKept):
		return
	case at.IsZero():
		f.keep.lapse(latelyName)
	default:
		f.keep.put(latelyName, &record{asOf: at})
	}
	f.latelyKept = at
}

func (f *folder) keepGone() {
	if len(f.gone)+len(f.goneKept) == 0 {
		clear(f.adopted)
		return
	}
	gone := map[string][]departed{}
	for _, d := range f.gone {
		gone[d.file] = append(gone[d.file], d)
	}
	for name := range f.goneKept {
		switch {
		case len(gone[name]) > 0:
			continue
		case f.adopted[name]:
			f.keep.put(goneFolder+name, nil) // with the file that has it now
		default:
			f.keep.lapse(goneFolder + name)
		}
	}
	maps.DeleteFunc(f.adopted, func(name string, _ bool) bool { return len(gone[name]) == 0 })
	for name, all := range gone {
		if !slices.Equal(all, f.goneKept[name]) {
			f.keep.put(goneFolder+name, goneRecord(all))
		}
	}
	f.goneKept = gone
}

// goneRecord is what is kept of what went from one file.
func goneRecord(all []departed) *record {
	r := &record{asOf: all[0].goodAt, encoded: true}
	for _, d := range all {
		r.edited = d.at
		r.objects = append(r.objects, d.object)
	}
	return r
}
