package adminapi

import (
	"fmt"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/feed"
)

// maxStoreProblems is how many problems of all files of one write are told, errors first. All of
// them count.
const maxStoreProblems = 1000

// storeFindings are what is wrong with what a write to the store brings. The zero value: nothing.
type storeFindings struct {
	list             []config.Problem // in the order of the files; of each severity at most maxStoreProblems
	errors, warnings int              // all there were
}

// add takes in the problems of one file, or object.
func (f *storeFindings) add(problems []config.Problem) {
	for _, p := range problems {
		n := &f.warnings
		if p.IsError() {
			n = &f.errors
		}
		if *n++; *n <= maxStoreProblems {
			f.list = append(f.list, p)
		}
	}
}

// refusal is that of a write with errors; nil when there is none.
func (f *storeFindings) refusal() error {
	if f.errors == 0 {
		return nil
	}
	text := fmt.Sprintf("%d errors: nothing was written", f.errors)
	if f.errors == 1 {
		text = "1 error: nothing was written"
	}
	return &admin.Refusal{Text: text, Is: admin.ErrInvalid, Problems: f.told()}
}

// told is the list as operators see it: errors leave room for as many warnings as there is, and
// what is left out is counted.
func (f *storeFindings) told() []config.Problem {
	room := maxStoreProblems - min(f.errors, maxStoreProblems)
	var out []config.Problem
	for _, p := range f.list {
		if !p.IsError() {
			if room == 0 {
				continue
			}
			room--
		}
		out = append(out, p)
	}
	if left := f.errors + f.warnings - len(out); left > 0 {
		out = append(out, config.Problem{Severity: feed.Warning,
			Text: fmt.Sprintf("%d more are not told, errors are told first: mend these to see the others", left)})
	}
	return out
}
