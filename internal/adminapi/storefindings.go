package adminapi

import (
	"fmt"
	"slices"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/feed"
)

// maxStoreProblems is how many problems of one write are listed. All of them count.
const maxStoreProblems = 1000

// storeFindings are the problems of what a write to the store brings, in the order of the files.
type storeFindings []config.Problem

// refusal refuses a write with errors; nil when there is none.
func (f storeFindings) refusal() error {
	errors := 0
	for _, p := range f {
		if p.IsError() {
			errors++
		}
	}
	if errors == 0 {
		return nil
	}
	text := fmt.Sprintf("%d errors: nothing was written", errors)
	if errors == 1 {
		text = "1 error: nothing was written"
	}
	return &admin.Refusal{Text: text, Is: admin.ErrInvalid, Problems: f.listed()}
}

// listed returns the problems that operators see. Of too many, errors come first and the rest is
// counted.
func (f storeFindings) listed() []config.Problem {
	left := len(f) - maxStoreProblems
	if left <= 0 {
		return f
	}
	errors, warnings := storeFindings{}, storeFindings{}
	for _, p := range f {
		if p.IsError() {
			errors = append(errors, p)
		} else {
			warnings = append(warnings, p)
		}
	}
	return append(slices.Concat(errors, warnings)[:maxStoreProblems], config.Problem{Severity: feed.Warning,
		Text: fmt.Sprintf("%d more are not listed, errors are listed first: fix these to see the others", left)})
}
