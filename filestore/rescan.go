package filestore

import (
	"path/filepath"
	"slices"
	"time"

	"github.com/ashore-mesh/ashore/config"
)

// scanName stands for a scan among pending files.
const scanName = ""

// scan lists the folder and takes note of the folders that cannot be read.
func (f *folder) scan() *listing {
	began := time.Now()
	defer func() { f.scanTook = time.Since(began) }()
	f.watch.err = nil
	f.watchAround()
	l := scan(f.src.cfg.Dir, f.src.cfg.FollowSymlinks, f.src.cfg.maxEntries, f.watch.add)
	if f.overLimit = l.overLimit(); f.overLimit {
		l.addKnown(f.src.cfg.Dir, f.files)
	}
	linked := make(map[string]bool, len(f.links)) // folders in which symlinks end
	for end := range f.links {
		linked[filepath.Dir(end)] = true
	}
	for dir := range f.watch.dirs {
		if rel, ok := within(f.src.cfg.Dir, dir); ok && !l.dirs[rel] && l.failed[rel] == nil && !linked[dir] {
			f.watch.remove(dir)
		}
	}
	f.failed, f.dirs, f.loops = f.failures(l), l.dirs, l.loops
	f.retrySoon = f.overLimit || l.unreadable()
	f.changedGroups[rootGroup] = true
	return l
}

// failures makes problems of the folders that cannot be read.
func (f *folder) failures(l *listing) map[string]config.Problem {
	out := make(map[string]config.Problem, len(l.failed))
	if len(l.failed) == 0 {
		return out
	}
	known := parents(f.files)
	for dir, err := range l.failed {
		p := folderProblem(filepath.Join(f.src.cfg.Dir, dir), err)
		p.Away, p.Unread = dir == ".", dir != "." // that nothing of the whole folder is seen is said by Away
		if known[dir] {
			p.Stale = true
			p.Text += "; until then the last content of its files stays in use"
		}
		out[dir] = p
	}
	return out
}

// rescan compares the folder with what is known of it, and reads what differs.
func (f *folder) rescan() {
	f.pending.drop(scanName)
	l := f.scan()
	now := time.Now()
	var differ []string
	for name, s := range l.files {
		delete(f.missed, name) // it is back; who takes it away another time does that then
		x := f.files[name]
		if x != nil && x.stamp == s && s != (stamp{}) {
			continue
		}
		if _, waiting := f.pending.due[name]; !waiting {
			differ = append(differ, name)
		}
	}
	// Opening thousands of files to look for their writers takes as long as reading them.
	if len(differ) > progressEvery && !f.progress(len(differ)) {
		return
	}
	var changed []string
	for _, name := range differ {
		s := l.files[name]
		if done, ok := f.src.written(name); ok && !done || !ok && now.Sub(s.modified) < f.src.cfg.Settle {
			f.pending.touch(name, false, now)
			continue
		}
		changed = append(changed, name)
	}
	lost := f.lost(l)
	f.miss(lost, now)
	clear(f.index.missing)
	for _, name := range lost {
		f.index.leave(f.files[name])
	}
	held := f.holdBack(l, lost, now)
	for _, name := range lost {
		switch {
		case held:
			f.pending.drop(name)
		case !f.pending.removal[name]:
			f.pending.touch(name, true, now)
		}
	}
	slices.Sort(changed)
	f.readAll(changed)
}
