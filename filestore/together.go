package filestore

import (
	"fmt"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
)

// Together is what several files define that are to be taken as one. The zero value is empty.
type Together struct {
	// Objects are those without an error, in the order of the files.
	Objects []*config.Object
	// Broken are the keys of objects that were refused, and Unread says that some part was refused whose key could not
	// be read; see config.Result.
	Broken []config.Key
	Unread bool
	// Problems are all that is wrong, file by file.
	Problems []config.Problem

	seen map[config.Key]config.Origin
}

// Add takes in one file. An object that an earlier one defines is an error.
func (t *Together) Add(r config.Result) {
	if t.seen == nil {
		t.seen = map[config.Key]config.Origin{}
	}
	t.Problems = append(t.Problems, r.Problems...)
	t.Broken = append(t.Broken, r.Broken...)
	t.Unread = t.Unread || r.Unread
	for _, o := range r.Objects {
		if first, twice := t.seen[o.Key]; twice {
			t.Problems = append(t.Problems, config.Problem{Severity: feed.Error, Object: o.Key.String(), File: o.Origin.File, Line: o.Origin.Line,
				Text: fmt.Sprintf("is defined in %s:%d too: remove one of the two", first.File, first.Line)})
			continue
		}
		t.seen[o.Key] = o.Origin
		t.Objects = append(t.Objects, o)
	}
}
