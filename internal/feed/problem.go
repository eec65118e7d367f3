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
	// Error means that the item is refused: its former version stays active, if it has one.
	Error Severity = "error"
	// Warning means that the item is active all the same.
	Warning Severity = "warning"
)

// Problem is one thing that is wrong with configuration or with a source: what is wrong, where, and
// what to do.
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
	// Stale means that an older version of the object is active instead. The merger sets it.
	Stale bool `json:"stale,omitempty"`
	// Since is when the problem appeared; the merger sets it when it is zero.
	Since time.Time `json:"since,omitzero"`
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

// Compare orders problems for people: by source, place and text.
func (p Problem) Compare(o Problem) int {
	return cmp.Or(cmp.Compare(p.Source, o.Source), cmp.Compare(p.File, o.File), cmp.Compare(p.Line, o.Line),
		cmp.Compare(p.Object, o.Object), cmp.Compare(p.Field, o.Field), cmp.Compare(p.Text, o.Text))
}

// SortProblems sorts problems by Problem.Compare.
func SortProblems(list []Problem) { slices.SortFunc(list, Problem.Compare) }
