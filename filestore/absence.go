package filestore

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
)

// absence is that the whole folder was empty of configuration, or not there, after files of it were read: its
// disk is not mounted, or somebody fills it anew. Until the folder has files again and is left alone, none
// of those that are missing counts as deleted.
type absence struct {
	since time.Time // when the folder last changed, or was last seen empty or away; zero: there is no absence
	bare  bool      // there is no file of configuration in it
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

// holdBack brings the absence up to date with a scan, and says whether the files that it found lost are to
// stay. stirs says that the scan found changes besides.
func (f *folder) holdBack(l *listing, lost []string, stirs bool, now time.Time) bool {
	switch {
	case l.failed["."] != nil:
		f.absence = absence{since: now}
		return true
	case len(l.files) == 0 && f.define(lost):
		f.absence = absence{since: now, bare: true}
		return true
	case !f.absence.is():
		return false
	case f.define(lost) && (stirs || f.absence.bare):
		f.absence = absence{since: now}
	case !f.define(lost) || now.Sub(f.absence.since) >= f.src.cfg.Return:
		f.absence = absence{}
		return false
	}
	f.scanAt(f.absence.since.Add(f.src.cfg.Return))
	return true
}

// define says that one of the files defines something.
func (f *folder) define(names []string) bool {
	return slices.ContainsFunc(names, func(name string) bool { x := f.files[name]; return x != nil && len(x.objects) > 0 })
}

// last says that there seems to be no file besides those that are gone; a scan tells for certain.
func (f *folder) last(gone []string) bool {
	there := func(name string) bool {
		_, err := os.Lstat(filepath.Join(f.src.cfg.Dir, name))
		return err == nil && !slices.Contains(gone, name)
	}
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
	p := config.Problem{Severity: feed.Error, File: f.src.cfg.Dir, Stale: true,
		Text: "there is no file of configuration in the folder any more: what its files defined stays at work; bring them back (is its disk mounted?), " +
			"or put one file there, with a comment alone, to remove everything"}
	switch {
	case !f.absence.is() || len(f.failed) > 0 && !f.absence.bare:
		return nil
	case !f.absence.bare:
		p.Severity = feed.Warning
		p.Text = fmt.Sprintf("the folder was empty or away, and not all of its files are back: what the others defined stays at work until nothing has changed in the folder for %s", f.src.cfg.Return)
	}
	return []config.Problem{p}
}
