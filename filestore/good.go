package filestore

import (
	"fmt"
	"slices"
	"time"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
)

// merge is the law of the last good version: what was read counts; objects that were refused stay as they
// were, and when it is unknown which were, all that are not among the good ones do. held are the keys
// of those that stay. Objects that did not change keep their pointer.
func merge(old []*config.Object, r config.Result) (objects []*config.Object, held map[config.Key]bool) {
	before := make(map[config.Key]*config.Object, len(old))
	for _, o := range old {
		before[o.Key] = o
	}
	objects = make([]*config.Object, 0, len(r.Objects))
	for _, o := range r.Objects {
		switch b := before[o.Key]; {
		case b == nil || b.Hash != o.Hash:
		case b.Origin == o.Origin:
			o = b
		default: // it moved: the content stays the same one
			moved := *b
			moved.Origin = o.Origin
			o = &moved
		}
		objects = append(objects, o)
		delete(before, o.Key)
	}
	for _, o := range old {
		if before[o.Key] != nil && (r.Unread || slices.Contains(r.Broken, o.Key)) {
			if held == nil {
				held = map[config.Key]bool{}
			}
			held[o.Key] = true
			objects = append(objects, o)
		}
	}
	return objects, held
}

// clean says that a file has no errors.
func clean(r config.Result) bool {
	return !r.Unread && len(r.Broken) == 0 &&
		!slices.ContainsFunc(r.Problems, func(p config.Problem) bool { return p.Severity == feed.Error })
}

// markStale marks the problems whose last good version is in use.
func markStale(problems []config.Problem, held map[config.Key]bool, of time.Time) []config.Problem {
	if len(held) == 0 {
		return problems
	}
	names := make(map[string]bool, len(held))
	for k := range held {
		names[k.String()] = true
	}
	out := slices.Clone(problems)
	for i := range out {
		p := &out[i]
		if p.Severity == feed.Error && (p.Object == "" || names[p.Object]) {
			p.Stale = true
			p.Text += fmt.Sprintf("; until then the last good version, of %s, stays in use", when(of))
		}
	}
	return out
}

// when writes a time for people.
func when(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

// take brings a reading into what is known of the file.
func (f *file) take(r reading) {
	if r.err != nil {
		f.stamp = stamp{}
		f.unreadable(r.err)
		return
	}
	f.stamp, f.asOf = r.stamp, r.at
	if r.same && f.digest == r.digest {
		return
	}
	f.digest, f.seen = r.digest, r.digest
	f.objects, f.held = merge(f.objects, r.result)
	if len(f.held) == 0 {
		f.goodAt = r.at
	}
	f.issues = markStale(r.result.Problems, f.held, f.goodAt)
	if r.blank && len(f.held) == 0 { // a new file, whose content comes yet
		f.issues = nil
	}
}

// unreadable keeps the content and says why it may be old.
func (f *file) unreadable(err error) {
	f.digest = [32]byte{}
	p := fileProblem(f.name, err)
	if len(f.objects) > 0 {
		p.Stale = true
		p.Text += fmt.Sprintf("; until then its last content, of %s, stays in use", when(f.goodAt))
	}
	f.issues = []config.Problem{p}
}
