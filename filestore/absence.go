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
	since time.Time        // when a file last came, or the folder was last seen empty or away; zero: there is no absence
	bare  bool             // there is no file of configuration in it
	back  map[string]stamp // the files that scans have seen in it since, as they were seen last, also those that are gone again
	first bool             // it was waited for from the start on: which of its files are missing nobody knows
	fills time.Time        // when a scan first saw files in it since, or saw one of those that it missed then; zero: none did
	wants []string         // the files that this first scan missed, and none saw since
}

// mostReturns is after how many times Config.Return an absence is over though files with new names go on coming, as some always do:
// from the first files on, or from when a file came that was missing.
const mostReturns = 10

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

// came says that the folder has files that it had not before. Files that change, cannot be read, or got another name do not
// count: some always do.
func (a absence) came(l *listing) bool {
	gone := a.left(l)
	for name, s := range l.files {
		if _, seen := a.back[name]; !seen && !gone[s.moved()] {
			return true
		}
	}
	return false
}

// left are the files that were seen, and are not there under that name any more.
func (a absence) left(l *listing) map[stamp]bool {
	out := map[stamp]bool{}
	for name, s := range a.back {
		if _, there := l.files[name]; !there && s != (stamp{}) {
			out[s.moved()] = true
		}
	}
	return out
}

// moved is what stays of the stamp of a file that gets another name, and is not changed.
func (s stamp) moved() stamp {
	return stamp{size: s.size, modified: s.modified, device: s.device, inode: s.inode}
}

// seen is the absence with the files of a scan.
func (a absence) seen(l *listing, lost []string, now time.Time) absence {
	back := make(map[string]stamp, len(l.files))
	maps.Copy(back, a.back)
	maps.Copy(back, l.files)
	a.back = back
	if a.fills.IsZero() {
		a.fills, a.wants = now, lost
		return a
	}
	wants := slices.DeleteFunc(slices.Clone(a.wants), func(name string) bool { _, there := l.files[name]; return there })
	if len(wants) < len(a.wants) {
		a.fills, a.wants = now, wants
	}
	return a
}

// over says that the absence has lasted as long as it may, whatever comes.
func (a absence) over(back time.Duration, now time.Time) bool {
	return !a.fills.IsZero() && now.Sub(a.fills) >= mostReturns*back
}

// gone is the absence of a folder that a scan found empty, or away.
func (a absence) gone(bare bool, now time.Time) absence {
	return absence{since: now, bare: bare, first: a.first}
}

// holdBack brings the absence up to date with a scan, and says whether the files that it found lost are to
// stay.
func (f *folder) holdBack(l *listing, lost []string, now time.Time) bool {
	switch {
	case l.failed["."] != nil:
		f.absence = f.absence.gone(false, now)
		return true
	case len(l.files) == 0 && f.define(lost):
		f.absence = f.absence.gone(true, now)
		return true
	case !f.absence.is():
		return false
	}
	came := f.absence.came(l)
	if len(l.files) > 0 {
		f.absence = f.absence.seen(l, lost, now)
	}
	waits := (f.absence.first || f.define(lost)) && !f.absence.over(f.src.cfg.Return, now)
	switch {
	case waits && came:
		f.absence.since, f.absence.bare = now, false
	case !waits || now.Sub(f.absence.since) >= f.src.cfg.Return:
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
		p.Text = fmt.Sprintf("the folder has come only now, and more files may be on their way: what it has is in use, and it counts as read when no more have come for %s, or %s after the first", f.src.cfg.Return, mostReturns*f.src.cfg.Return)
	case !f.absence.bare:
		p.Severity, p.Away = feed.Warning, false
		p.Text = fmt.Sprintf("the folder was empty, away or not watched, and not all of its files are back: what the others defined stays at work until no more files have come for %s, or none of these for %s; then they count as deleted", f.src.cfg.Return, mostReturns*f.src.cfg.Return)
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
