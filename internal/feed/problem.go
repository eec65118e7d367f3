package feed

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Severity is the effect of a Problem on its item.
type Severity string

const (
	// Error means that the item is rejected. Its previous version, if any, stays active.
	Error Severity = "error"
	// Warning means that the item is active.
	Warning Severity = "warning"
)

// Problem is one problem of configuration or of a source, with its place and its remedy.
type Problem struct {
	Severity Severity `json:"severity"`
	// Source is the name of the source. If it is empty, the merger sets it.
	Source string `json:"source,omitempty"`
	// Object is the kind and name, "VirtualService shop/web". Empty if no object could be read.
	Object string `json:"object,omitempty"`
	// Field is the path within the object, "spec.http[0].route[1].weight". May be empty.
	Field string `json:"field,omitempty"`
	// File and Line are the place in a file. Empty and zero if it is not from a file.
	File string `json:"file,omitempty"`
	Line int    `json:"line,omitempty"`
	// Text says what is wrong and what to do, in one sentence each, without a final period.
	Text string `json:"text"`
	// Stale means that an older version of the object is active instead. The merger sets it.
	Stale bool `json:"stale,omitempty"`
	// Since is when the problem appeared. If it is zero, the merger sets it.
	Since time.Time `json:"since,omitzero"`
}

// String returns the problem on one line: "web.yaml:12: VirtualService shop/web spec.hosts: …".
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

// IsError reports whether the severity is Error.
func (p Problem) IsError() bool { return p.Severity == Error }

// Errors returns the number of problems that are errors.
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
