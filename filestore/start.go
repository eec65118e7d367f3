package filestore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/ashore-mesh/ashore/config"
)

// Check returns the error that Run would end with at once, or, with Config.Await, wait for the end of: the folder cannot be
// read, and nothing was kept of an earlier content. It changes nothing.
func (s *Source) Check(ctx context.Context) error {
	_, err := os.ReadDir(s.cfg.Dir)
	if err == nil {
		return nil
	}
	kept, loadErr := newKeeper(s.cfg.LastGood, s.name, s.cfg.Log).load(ctx)
	if usable(kept) {
		return nil
	}
	return errors.Join(s.unreadable(err), loadErr)
}

func (s *Source) unreadable(err error) error {
	return fmt.Errorf("read the folder of configuration %s: %w; make it a folder that can be read, name another one (setting sources, or --files in development), or have it waited for (required: false)", s.cfg.Dir, err)
}

// start reads everything for the first time, with what was kept of earlier contents at hand. After an error it may be called again.
func (f *folder) start(ctx context.Context) error {
	kept, loadErr := f.keep.load(ctx)
	f.away = kept[awayName].asOf
	missed, err := missedOf(kept)
	f.missedKept, f.unloaded = missed, errors.Join(loadErr, err)
	last := lastOf(kept)
	maps.DeleteFunc(kept, func(name string, _ record) bool { return aside(name) })
	for name, record := range kept { // before the scan, which tells whether anything stays in use
		f.files[name] = &file{name: name, known: record.known}
	}
	l := f.scan()
	if err := f.src.nothing(l, loadErr); err != nil && !usable(kept) {
		return err
	}
	now := time.Now()
	for name := range l.files {
		if f.files[name] == nil {
			f.files[name] = &file{name: name, known: now}
		}
	}
	f.fill(l, kept, last)
	if ctx.Err() != nil {
		return nil // not all was read
	}
	lost := f.lost(l)
	for _, name := range lost {
		f.missed[name] = cmp.Or(f.missedKept[name], now)
	}
	f.absence = absence{since: now, first: f.awaited} // until it shows that no file is missing
	if !f.holdBack(l, lost, now) {
		f.drop(lost...)
	}
	return nil
}

// nothing is the error of a scan that found nothing to begin with; loadErr is why what was kept cannot be read, if so.
func (s *Source) nothing(l *listing, loadErr error) error {
	if err := bareListing(l); s.cfg.Await && err != nil {
		return s.awaitedText(err, loadErr)
	}
	if err := l.failed["."]; err != nil {
		return s.unreadable(err)
	}
	return nil
}

// fill reads the files of a first scan, those first that were known first: of two that define one object
// it is the same as before that counts. What is missing of the others comes last.
func (f *folder) fill(l *listing, kept map[string]record, last lastChange) {
	lost := map[string]bool{}
	for _, name := range f.lost(l) {
		lost[name] = true
	}
	names := slices.SortedFunc(maps.Keys(f.files), func(a, b string) int {
		switch {
		case lost[a] && !lost[b]:
			return 1
		case lost[b] && !lost[a]:
			return -1
		}
		return cmp.Or(f.files[a].known.Compare(f.files[b].known), cmp.Compare(a, b))
	})
	there := slices.DeleteFunc(slices.Clone(names), func(n string) bool { _, ok := l.files[n]; return !ok })
	readings, all := f.readings(there)
	if !all {
		return
	}
	f.recall(last, kept)
	for name := range lost {
		f.restore(f.files[name], kept[name]) // first: others may be what became of them
		f.index.leave(f.files[name])
	}
	same := func(name string) bool { old, known := kept[name]; return known && old.same(readings[name]) }
	for _, name := range names {
		old, known := kept[name]
		if x := f.files[name]; known && !lost[name] {
			f.asBefore(x, old, readings[name], last)
		}
	}
	for _, name := range names {
		x := f.files[name]
		switch r, there := readings[name]; {
		case same(name):
		case there:
			f.take(r, false)
		case lost[name]:
			f.leave(x, l)
			f.supply(x)
		default:
			f.supply(x)
		}
	}
}

// asBefore gives a file what it held before the start. All have that before any is taken as it is now: what a file defines
// since then does not come before what another one had.
func (f *folder) asBefore(x *file, old record, r reading, last lastChange) {
	x.lately = last.with(old.edited)
	if x.lately {
		old.edited = time.Now()
	}
	if old.same(r) {
		x.seen, x.edited = r.digest, old.edited
		f.take(r, !x.lately)
		return
	}
	f.restore(x, old)
	f.supply(x)
}

// leave takes from a missing file the objects that files which are there define: it was renamed, or they
// were moved to another one.
func (f *folder) leave(x *file, l *listing) {
	x.objects = slices.DeleteFunc(x.objects, func(o *config.Object) bool {
		return slices.ContainsFunc(f.owners[o.Key], func(c claim) bool { _, there := l.files[c.file]; return there })
	})
}

// restore gives a file the content that was kept of it, as far as this release can read that.
func (f *folder) restore(x *file, r record) {
	x.goodAt, x.asOf, x.edited = r.asOf, r.asOf, r.edited
	copy(x.seen[:], r.seen)
	x.objects, x.rest, x.unkept = r.restored(x.name, f.src.name)
	x.had = keysOf(x.objects)
	for _, k := range r.left {
		x.had[k] = true
	}
	x.kept = true
}
