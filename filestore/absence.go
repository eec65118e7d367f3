package filestore

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
)

// absence is that the whole folder was empty of configuration, or not there, after files of it were read: its
// disk is not mounted, or somebody fills it anew. A start where known files are missing is one too: when a machine
// boots, mounts and checkouts are half done. Until the folder has files again and is left alone, none
// of those that are missing counts as deleted.
type absence struct {
	since time.Time       // when a file last came, or the folder was last seen empty or away; zero: there is no absence
	bare  bool            // there is no file of configuration in it
	back  map[string]bool // the files that a scan has seen in it since
	first bool            // it was waited for from the start on: which of its files are missing nobody knows
}

func (a absence) is() bool { return !a.since.IsZero() }

// lost are the known files that are not in a folder that could be read.
func (f *folder) lost(l *listing) []string {
	var out []string
	for name := range f.files {
		if _, there := l.files[name]; !there && !l.unknown(name) {
			out = append(out, name)
		}
	}
	return out
}

// came says that the folder has files that it had not before. Files that change, or cannot be read, do not
// count: some always do.
func (a absence) came(l *listing) bool {
	for name := range l.files {
		if !a.back[name] {
			return true
		}
	}
	return false
}

// with are the files that were seen, those of a listing included.
func (a absence) with(l *listing) map[string]bool {
	out := make(map[string]bool, len(l.files))
	maps.Copy(out, a.back)
	for name := range l.files {
		out[name] = true
	}
	return out
}

// holdBack brings the absence up to date with a scan, and says whether the files that it found lost are to
// stay.
func (f *folder) holdBack(l *listing, lost []string, now time.Time) bool {
	switch {
	case l.failed["."] != nil:
		f.absence = absence{since: now, first: f.absence.first}
		return true
	case len(l.files) == 0 && f.define(lost):
		f.absence = absence{since: now, bare: true, first: f.absence.first}
		return true
	case !f.absence.is():
		return false
	case (f.absence.first || f.define(lost)) && f.absence.came(l):
		f.absence = absence{since: now, back: f.absence.with(l), first: f.absence.first}
	case !f.absence.first && !f.define(lost) || now.Sub(f.absence.since) >= f.src.cfg.Return:
		f.absence = absence{}
		return false
	}
	f.scanAt(f.absence.since.Add(f.src.cfg.Return))
	return true
}

// miss notes since when files are away.
func (f *folder) miss(names []string, now time.Time) {
	for _, name := range names {
		if f.missed[name].IsZero() {
			f.missed[name] = now
		}
	}
}

// keepMissed keeps over a restart since when files are away: what was edited with them is known by that.
func (f *folder) keepMissed() {
	if maps.Equal(f.missed, f.missedKept) {
		return
	}
	f.missedKept = maps.Clone(f.missed)
	if len(f.missed) == 0 {
		f.keep.put(missedName, nil)
		return
	}
	f.keep.put(missedName, &record{missed: f.missedKept})
}

// define says that one of the files defines something.
func (f *folder) define(names []string) bool {
	return slices.ContainsFunc(names, func(name string) bool { x := f.files[name]; return x != nil && (len(x.objects) > 0 || x.unkept != "") })
}

// last says that there seems to be no file besides those that are gone; a scan tells for certain.
func (f *folder) last(gone []string) bool {
	there := func(name string) bool { return f.there(name) && !slices.Contains(gone, name) }
	for name := range f.files {
		if there(name) {
			return false
		}
	}
	for name := range f.pending.due {
		if name != scanName && there(name) {
			return false
		}
	}
	return f.define(gone)
}

// absent is what operators are told of an absence; a folder that cannot be read is told of elsewhere.
func (f *folder) absent() []config.Problem {
	p := config.Problem{Severity: feed.Error, File: f.src.cfg.Dir, Stale: true, Away: true,
		Text: "there is no file of configuration in the folder any more: what its files defined stays at work; bring them back (is its disk mounted?), " +
			"or put one file there, with a comment alone, to remove everything"}
	switch {
	case !f.absence.is() || len(f.failed) > 0 && !f.absence.bare:
		return nil
	case f.absence.first && !f.absence.bare:
		p.Severity, p.Stale = feed.Warning, false
		p.Text = fmt.Sprintf("the folder has come only now, and more files may be on their way: what it has is in use, and it counts as read when no more have come for %s", f.src.cfg.Return)
	case !f.absence.bare:
		p.Severity, p.Away = feed.Warning, false
		p.Text = fmt.Sprintf("the folder was empty, away or not watched, and not all of its files are back: what the others defined stays at work until no more have come for %s; then they count as deleted", f.src.cfg.Return)
	}
	return []config.Problem{p}
}

// markAway keeps over a restart since when the folder is out of reach, by the problems that are not of one file.
func (f *folder) markAway(problems []config.Problem) {
	i := slices.IndexFunc(problems, func(p config.Problem) bool { return p.Away })
	switch {
	case i >= 0 && f.away.IsZero():
		f.away = problems[i].Since
		f.keep.put(awayName, &record{asOf: f.away})
	case i < 0 && !f.away.IsZero():
		f.away = time.Time{}
		f.keep.put(awayName, nil)
	}
}
