package filestore

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
)

// saying is what makes a problem the same one as before, wherever in the file it has moved to.
type saying struct{ object, field, file, text string }

// batch is what has changed since the last one; false when nothing has. full says that it is the first.
func (f *folder) batch(full bool) (feed.Batch[*config.Object], bool) {
	b := feed.Batch[*config.Object]{Source: f.src.name, Full: full, Since: f.since}
	now := time.Now()
	f.markChangedClaims()
	f.assignTombstones()
	f.forget()
	for _, group := range slices.Sorted(maps.Keys(f.changedGroups)) {
		u := f.update(group)
		if full {
			u.Was = f.wentFrom(group)
		}
		news := f.date(&u, now)
		if group == rootGroup {
			f.markAway(u.Problems)
			if !news {
				continue
			}
		}
		b.Updates = append(b.Updates, u)
	}
	clear(f.changedGroups)
	f.keepMissed()
	f.keepLately()
	f.keep.commit()
	f.since = time.Time{}
	return b, full || len(b.Updates) > 0
}

// update is the content of a group.
func (f *folder) update(group string) feed.Update[*config.Object] {
	u := feed.Update[*config.Object]{Group: group, AsOf: time.Now()}
	if group == rootGroup {
		u.Problems = f.problems()
		return u
	}
	x := f.files[group]
	if x == nil {
		u.Edited = f.missed[group]
		delete(f.missed, group)
		return u
	}
	u.AsOf, u.Edited, u.Kept = x.asOf, x.edited, x.kept
	if len(x.held) > 0 || len(x.issues) > 0 && x.issues[0].Stale {
		u.AsOf = x.goodAt
	}
	items, clashes := f.owners.split(x)
	u.Items, u.Problems = items, slices.Concat(x.issues, x.unusable(), x.lingering(f.owners), clashes)
	return u
}

// unusable is the problem of a file of which not all that was kept before the start can be used.
func (f *file) unusable() []config.Problem {
	if f.unkept == "" {
		return nil
	}
	return []config.Problem{{Severity: feed.Error, File: f.name, Text: fmt.Sprintf(
		"some of what was kept of its last good content cannot be used (%s): what the file does not define without errors now is missing until it does; it is kept on for another release of ashored", f.unkept)}}
}

// problems are those that are not of one file.
func (f *folder) problems() []config.Problem {
	out := slices.Collect(maps.Values(f.failed))
	out = slices.AppendSeq(out, maps.Values(f.loops))
	out = append(out, f.absent()...)
	if f.watch.err != nil {
		out = append(out, config.Problem{Severity: feed.Warning, File: f.src.cfg.Dir, Text: fmt.Sprintf(
			"the kernel does not tell of all changes (%v), so they take effect within %s: raise fs.inotify.max_user_watches and fs.inotify.max_user_instances", f.watch.err, f.src.cfg.Rescan)})
	}
	if f.unloaded != nil {
		out = append(out, config.Problem{Severity: feed.Error, File: f.src.cfg.Dir, Text: fmt.Sprintf(
			"some of what was kept of the files before the start cannot be read (%v): objects that no file defines without errors now may be missing; see that all that should be there is, then start ashored again", f.unloaded)})
	}
	if f.keepup != nil {
		out = append(out, config.Problem{Severity: feed.Error, File: f.src.cfg.Dir, Text: fmt.Sprintf(
			"the last good content of files cannot be kept for the next start (%v): changes take effect all the same; it is tried again every second", f.keepup)})
	}
	return out
}

// date fills in since when problems are, logs those that are new or gone, and says whether there were any.
func (f *folder) date(u *feed.Update[*config.Object], now time.Time) (news bool) {
	before := f.said[u.Group]
	said := make(map[saying]time.Time, len(u.Problems))
	for i := range u.Problems {
		p := &u.Problems[i]
		s := saying{p.Object, p.Field, p.File, p.Text}
		since, old := before[s]
		if !old {
			since = now
			if p.Away && !f.away.IsZero() {
				since = f.away
			}
			f.log(*p)
		}
		p.Since, said[s] = since, since
	}
	if len(before) > 0 && len(said) == 0 {
		f.src.cfg.Log.Info("configuration is in order again", "folder", f.src.cfg.Dir, "file", u.Group)
	}
	f.said[u.Group] = said
	if len(said) == 0 {
		delete(f.said, u.Group)
	}
	return !maps.Equal(before, said)
}

func (f *folder) log(p config.Problem) {
	say := f.src.cfg.Log.Warn
	if p.Severity == feed.Error && !p.Stale {
		say = f.src.cfg.Log.Error
	}
	text := p.String()
	if p.Unenforced {
		text += "; nothing of this folder is enforced for it until it is mended"
	}
	say("configuration problem", "folder", f.src.cfg.Dir, "problem", text)
}

// keeping takes in how the keeper fares.
func (f *folder) keeping(err error) {
	if err == nil && f.keepup == nil {
		return
	}
	f.keepup = err
	f.changedGroups[rootGroup] = true
}
