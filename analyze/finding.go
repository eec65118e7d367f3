package analyze

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
)

// Severity says how certain a finding is.
type Severity string

const (
	// Error means that the object, or a part of it, has no effect, or that traffic fails.
	Error Severity = "error"
	// Warning means that the object probably does not do what is meant.
	Warning Severity = "warning"
	// Info means that it depends on what a registry supplies.
	Info Severity = "info"
)

// Finding is one thing that is wrong between objects. Comparable.
type Finding struct {
	Code     Code     `json:"code"`
	Severity Severity `json:"severity"`
	// Source is where the object comes from, "file:/etc/ashore/config".
	Source string `json:"source,omitempty"`
	// Object is the kind and name, "VirtualService shop/web".
	Object string `json:"object,omitempty"`
	// Field is the path within the object, "spec.http[0].route[1].destination.host".
	Field string `json:"field,omitempty"`
	// File and Line are where the object is written; empty and zero when it did not come from a file.
	File string `json:"file,omitempty"`
	Line int    `json:"line,omitempty"`
	// Text is what is wrong, without a final period.
	Text string `json:"text"`
	// Remedy is what to do, without a final period; empty when Text says it.
	Remedy string `json:"remedy,omitempty"`

	registry bool
}

// finding is one about a part of o.
func finding(code Code, o *config.Object, field, text, remedy string) Finding {
	i := info(code)
	return Finding{
		Code: code, Severity: i.Severity, Source: o.Origin.Source, Object: o.Key.String(), Field: field,
		File: o.Origin.File, Line: o.Origin.Line, Text: text, Remedy: remedy, registry: i.Registry,
	}
}

// Problem is the finding as "ashorectl problems" shows it. Information is a warning there.
func (f Finding) Problem() feed.Problem {
	p := feed.Problem{
		Severity: feed.Warning, Source: f.Source, Object: f.Object, Field: f.Field, File: f.File, Line: f.Line,
		Text: fmt.Sprintf("%s: %s [%s]", f.Text, f.Remedy, f.Code),
	}
	if f.Severity == Error {
		p.Severity = feed.Error
	}
	return p
}

// Problems are findings as "ashorectl problems" shows them.
func Problems(list []Finding) []feed.Problem {
	out := make([]feed.Problem, len(list))
	for i, f := range list {
		out[i] = f.Problem()
	}
	return out
}

// Invalid is a problem of one object, or of a file, as a finding.
func Invalid(p feed.Problem) Finding {
	f := Finding{
		Code: InvalidObject, Severity: Error, Source: p.Source, Object: p.Object, Field: p.Field,
		File: p.File, Line: p.Line, Text: p.Text,
	}
	if !p.IsError() {
		f.Code, f.Severity = ObjectWarning, Warning
	}
	return f
}

// Offline makes information of the findings whose cause a registry, or a workload that joins, may remove.
func Offline(list []Finding) []Finding {
	out := slices.Clone(list)
	for i := range out {
		if out[i].registry {
			out[i].Severity = Info
		}
	}
	return out
}

// sortFindings orders findings by place.
func sortFindings(list []Finding) {
	slices.SortStableFunc(list, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Source, b.Source), cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line),
			cmp.Compare(a.Object, b.Object), cmp.Compare(a.Field, b.Field), cmp.Compare(a.Code, b.Code),
			cmp.Compare(a.Text, b.Text))
	})
}

// named is an object with the file where it is written, for sentences. The line is left out: it changes too often.
func named(o *config.Object) string {
	if where := cmp.Or(o.Origin.File, o.Origin.Source); where != "" {
		return fmt.Sprintf("%s (%s)", o.Key, where)
	}
	return o.Key.String()
}

// few is a list for sentences, cut off where it gets long.
func few(list []string) string {
	const most = 5
	if len(list) <= most {
		return strings.Join(list, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(list[:most], ", "), len(list)-most)
}
