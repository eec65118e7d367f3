package filestore

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
)

// merged is what a file holds after a reading.
type merged struct {
	objects []*config.Object
	held    map[config.Key]bool       // those that stay in their last good version; nil: none
	guests  map[config.Key]config.Key // those of held that the file does not name any more; see file.guests
}

// merge is the law of the last good version: what was read counts, and what is missing goes only when nothing is wrong with
// the file. Objects that were refused stay as they were, and so do all that are not among the good ones while there is any
// error; clash says that there is one which does not show in the reading. moved says of an object that another file
// has defined it in the same change. Objects that did not change keep their pointer.
func (f *file) merge(r config.Result, clash bool, moved func(config.Key) bool) merged {
	before := make(map[config.Key]*config.Object, len(f.objects))
	for _, o := range f.objects {
		before[o.Key] = o
	}
	fresh := newcomers(r, f.objects)
	m := merged{objects: make([]*config.Object, 0, len(r.Objects))}
	for _, o := range r.Objects {
		m.objects = append(m.objects, inPlaceOf(before[o.Key], o))
		delete(before, o.Key)
	}
	for _, o := range f.objects {
		if before[o.Key] == nil {
			continue
		}
		switch {
		case slices.Contains(r.Broken, o.Key):
			m.hold(o)
		case r.Unread && f.isGuest(o.Key):
			m.host(o, config.Key{})
		case r.Unread:
			m.hold(o)
		case (clash || !clean(r)) && !moved(o.Key):
			m.host(o, heirOf(fresh, o))
		}
	}
	return m
}

// inPlaceOf is an object that was read, or the one before it when nothing has changed.
func inPlaceOf(before, o *config.Object) *config.Object {
	switch {
	case before == nil || before.Hash != o.Hash:
		return o
	case before.Origin == o.Origin:
		return before
	}
	moved := *before // the content stays the same one
	moved.Origin = o.Origin
	return &moved
}

// hold keeps an object in its last good version.
func (m *merged) hold(o *config.Object) {
	if m.held == nil {
		m.held = map[config.Key]bool{}
	}
	m.held[o.Key] = true
	m.objects = append(m.objects, o)
}

// host keeps an object that the file does not name any more, on account of one that is refused.
func (m *merged) host(o *config.Object, heir config.Key) {
	m.hold(o)
	if m.guests == nil {
		m.guests = map[config.Key]config.Key{}
	}
	m.guests[o.Key] = heir
}

// clean says that a file has no errors.
func clean(r config.Result) bool {
	return !r.Unread && len(r.Broken) == 0 &&
		!slices.ContainsFunc(r.Problems, func(p config.Problem) bool { return p.Severity == feed.Error })
}

// markStale marks the problems whose last good version is in use. The first that is of no object names what is.
func (f *file) markStale(problems []config.Problem) []config.Problem {
	if len(f.held) == 0 {
		return problems
	}
	names := make(map[string]bool, len(f.held))
	for k := range f.held {
		names[k.String()] = true
	}
	kept := f.keptNames()
	out := slices.Clone(problems)
	for i := range out {
		p := &out[i]
		if p.Severity != feed.Error || p.Object != "" && !names[p.Object] {
			continue
		}
		p.Stale = true
		p.Text += fmt.Sprintf("; until then the last good version, of %s, stays in use", when(f.goodAt))
		if p.Object == "" {
			p.Text, kept = p.Text+kept, ""
		}
	}
	return out
}

// maxKept is how many objects one problem names.
const maxKept = 5

// keptNames are the objects that stay in use because a part of the file cannot be read; others have a problem of their own.
func (f *file) keptNames() string {
	var names []string
	for k := range f.held {
		if !f.isGuest(k) {
			names = append(names, k.String())
		}
	}
	if len(names) == 0 {
		return ""
	}
	slices.Sort(names)
	if more := len(names) - maxKept; more > 0 {
		names = append(names[:maxKept], fmt.Sprintf("%d more", more))
	}
	return ": " + strings.Join(names, ", ")
}

// markUnread marks the errors of a file that has a part which cannot be read. There may be anything in it: what stays in use of
// before does not say what somebody has put there since.
func markUnread(problems []config.Problem, unread bool) []config.Problem {
	if !unread {
		return problems
	}
	out := slices.Clone(problems)
	for i := range out {
		out[i].Unread = out[i].Severity == feed.Error
	}
	return out
}

// when writes a time for people.
func when(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

// take brings a reading into what is known of the file. For clash and moved see merge.
func (f *file) take(r reading, clash bool, moved func(config.Key) bool) {
	if r.err != nil {
		f.stamp = stamp{}
		f.unreadable(r.err)
		return
	}
	f.stamp, f.asOf, f.kept = r.stamp, r.at, false
	if r.same && f.digest == r.digest {
		return
	}
	if f.seen != r.digest {
		f.edited = r.at
	}
	f.digest, f.seen = r.digest, r.digest
	f.unread, f.fresh = r.result.Unread && !r.blank, newcomers(r.result, f.objects)
	f.clashing, f.wrong = clash, clash || !r.blank && !clean(r.result)
	if clean(r.result) && !r.blank {
		f.unkept, f.rest, f.had = "", nil, nil
	}
	m := f.merge(r.result, clash, moved)
	f.objects, f.held, f.guests = m.objects, m.held, m.guests
	if len(f.held) == 0 {
		f.goodAt = r.at
	}
	f.issues = f.unprotected(f.markStale(markUnread(r.result.Problems, f.unread)))
	if r.blank && len(f.held) == 0 { // a new file, whose content comes yet
		f.issues = nil
	}
}

// unreadable keeps the content and says why it may be old.
func (f *file) unreadable(err error) {
	f.digest = [32]byte{}
	p := fileProblem(f.name, err)
	p.Unread = true
	if len(f.objects) > 0 {
		p.Stale = true
		p.Text += fmt.Sprintf("; until then its last content, of %s, stays in use", when(f.goodAt))
	}
	f.issues = []config.Problem{p}
}
