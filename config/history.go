package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"google.golang.org/protobuf/proto"
)

var (
	// ErrForgotten says that a store does not remember what it held at a revision.
	ErrForgotten = errors.New("not remembered any more")
	// ErrNoRevision says that there is no such revision.
	ErrNoRevision = errors.New("no such revision")
)

// Query says which writes are asked for. The zero value asks for all that are remembered.
type Query struct {
	// Key asks for the writes of one object; zero: of all.
	Key Key
	// After leaves out the revision of that number and all before it. Empty: none.
	After string
	// Limit is how many revisions there may be at most, the latest ones. 0: all; less: none, which
	// asks for the other fields of Past.
	Limit int
	// Bytes limits the encoded objects of the answer: no revision follows the one that exceeds it. 0: no
	// limit.
	Bytes int
	// Bare says that the Key and Revision of objects are enough: the rest of them is left out,
	// which costs much less.
	Bare bool
}

// Past is what a store remembers.
type Past struct {
	// Latest is the present revision, "0" before the first write.
	Latest string
	// Since is the oldest revision of which it is known what the store held: every later one is
	// remembered.
	Since string
	// Revisions are those that were asked for, the latest first.
	Revisions []Revision
}

// Revision is one change of a store: what one Put, Delete or Apply did.
type Revision struct {
	// Number is that of the store after it.
	Number string
	// Who wrote it, in the words of the writer's caller, and when.
	Who  string
	When time.Time
	// Writes are those that were asked for, in the order of their keys.
	Writes []Write
}

// Write is what a revision did to one object.
type Write struct {
	Key Key
	// Before and After are the object on both sides of it; nil: there was none.
	Before, After *Object
}

// ParseRevision reads the number of a revision. Errors: ErrNoRevision.
func ParseRevision(s string) (uint64, error) {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%.40q: %w: want a number such as 12", s, ErrNoRevision)
	}
	return n, nil
}

// Back returns the changes after which a store holds what it held at a revision: they undo what
// past tells of, which is the answer to a Query with that revision as After. Each change names the
// revision that its object has now, so that nothing is undone that past does not know. What is the
// same on both sides is left alone. Errors: ErrForgotten, ErrNoRevision.
func Back(past Past, revision string) ([]Change, error) {
	if err := past.Reaches(revision); err != nil {
		return nil, err
	}
	now, then := map[Key]*Object{}, map[Key]*Object{}
	var keys []Key
	for _, r := range past.Revisions {
		for _, w := range r.Writes {
			if _, seen := then[w.Key]; !seen {
				keys, now[w.Key] = append(keys, w.Key), w.After
			}
			then[w.Key] = w.Before // of the earliest one in the end
		}
	}
	slices.SortFunc(keys, Key.Compare)
	var out []Change
	for _, k := range keys {
		if !SameContent(now[k], then[k]) {
			out = append(out, Change{Key: k, Object: then[k], Revision: revisionOf(now[k])})
		}
	}
	return out, nil
}

// Reaches says what keeps the past from telling what there was at a revision. Errors: ErrForgotten,
// ErrNoRevision.
func (p Past) Reaches(revision string) error {
	at, err := ParseRevision(revision)
	if err != nil {
		return err
	}
	latest, err := ParseRevision(p.Latest)
	if err != nil {
		return err
	}
	since, err := ParseRevision(p.Since)
	switch {
	case err != nil:
		return err
	case at > latest:
		return fmt.Errorf("revision %s: %w: the latest one is %s", revision, ErrNoRevision, p.Latest)
	case at < since:
		return fmt.Errorf("revision %s: %w: the history goes back to revision %s", revision, ErrForgotten, p.Since)
	}
	return nil
}

// revisionOf is the revision that a write of an object names to change just that one.
func revisionOf(o *Object) string {
	if o == nil {
		return Absent
	}
	return o.Revision
}

// SameContent says that two objects of one key say the same; when they were created does not count,
// as a store keeps the time of the first one. Two that are nil do, too.
func SameContent(a, b *Object) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Key == b.Key && maps.Equal(a.Labels, b.Labels) && maps.Equal(a.Annotations, b.Annotations) &&
		proto.Equal(a.Spec, b.Spec)
}
