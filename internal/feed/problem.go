package feed

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Severity says what a Problem does to the item that it is about.
type Severity string

const (
	// Error refuses the item: its last good version stays, or it does not come to be.
	Error Severity = "error"
	// Warning leaves the item at work.
	Warning Severity = "warning"
)

// Problem is one thing that is wrong with what an operator wrote or a source said, in words that
// tell what is wrong, where, and what to do.
type Problem struct {
	Severity Severity `json:"severity"`
	// Source is the name of the source; the merger fills it in when it is empty.
	Source string `json:"source,omitempty"`
	// Object is the kind and name, "VirtualService shop/web"; empty when no object could be read.
	Object string `json:"object,omitempty"`
	// Field is the path within the object, "spec.http[0].route[1].weight"; may be empty.
	Field string `json:"field,omitempty"`
	// File and Line are where it is written; empty and zero when it did not come from a file.
	File string `json:"file,omitempty"`
	Line int    `json:"line,omitempty"`
	// Text is what is wrong and what to do, one sentence each, without a final period.
	Text string `json:"text"`
	// Stale says that the last good version is in use instead, or nothing where Text says that it counts as gone.
	Stale bool `json:"stale,omitempty"`
	// Since is when it was first seen.
	Since time.Time `json:"since,omitzero"`
	// Away says that it is about the source as a whole, which has lost its origin.
	Away bool `json:"-"`
	// Unread says that it is about a part that cannot be read as it is now: there may be anything in it.
	Unread bool `json:"-"`
	// Unenforced says that the object should protect, and that its source has no version of it that could.
	Unenforced bool `json:"-"`
	// Contradicts says that another source says something else about the same, and decides.
	Contradicts bool `json:"-"`
}

// String is the problem on one line: "web.yaml:12: VirtualService shop/web spec.hosts: …".
func (p Problem) String() string {
	var b strings.Builder
	if p.File != "" {
		b.WriteString(p.File)
		if p.Line > 0 {
			fmt.Fprintf(&b, ":%d", p.Line)
		}
		b.WriteString(": ")
	}
	if where := strings.TrimSpace(p.Object + " " + p.Field); where != "" {
		b.WriteString(where + ": ")
	}
	b.WriteString(p.Text)
	return b.String()
}

// IsError says that what the problem is about is not taken in as it is.
func (p Problem) IsError() bool { return p.Severity == Error }

// Errors is how many of problems are errors.
func Errors(list []Problem) (n int) {
	for _, p := range list {
		if p.IsError() {
			n++
		}
	}
	return n
}

// SortProblems puts problems in the order in which people read them: by source, place and text.
func SortProblems(list []Problem) {
	slices.SortFunc(list, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Source, b.Source), cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line),
			cmp.Compare(a.Object, b.Object), cmp.Compare(a.Field, b.Field), cmp.Compare(a.Text, b.Text))
	})
}
