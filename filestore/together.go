package filestore

import (
	"fmt"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
)

// Together is the content of several files. The zero value is empty.
type Together struct {
	// Objects are the valid objects, in the order of the files.
	Objects []*config.Object
	// Broken are the keys of invalid objects. Unread means that some part is invalid whose key
	// could not be read.
	Broken []config.Key
	Unread bool
	// Problems are those of all files, file by file.
	Problems []config.Problem

	seen map[config.Key]config.Origin
}

// Add adds a file. An object that an earlier file defines is an error.
func (t *Together) Add(r config.Result) {
	if t.seen == nil {
		t.seen = map[config.Key]config.Origin{}
	}
	t.Problems = append(t.Problems, r.Problems...)
	t.Broken = append(t.Broken, r.Broken...)
	t.Unread = t.Unread || r.Unread
	for _, o := range r.Objects {
		if first, twice := t.seen[o.Key]; twice {
			t.Problems = append(t.Problems, config.Problem{
				Severity: feed.Error, Object: o.Key.String(), File: o.Origin.File, Line: o.Origin.Line,
				Text: fmt.Sprintf("%s:%d defines it too and takes precedence: remove one of the two", first.File, first.Line),
			})
			continue
		}
		t.seen[o.Key] = o.Origin
		t.Objects = append(t.Objects, o)
	}
}
