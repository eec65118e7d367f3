package analyze

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
)

// Info is the severity of a finding that depends on what a registry supplies. Other findings have
// the severities of package feed.
const Info feed.Severity = "info"

// Finding is one thing that is wrong between objects. Comparable.
type Finding struct {
	feed.Problem
	Code Code `json:"code"`
	// Remedy is what to do, without a final period. Empty if Text says it.
	Remedy string `json:"remedy,omitempty"`

	// offline is the severity in Offline. It differs from Severity if a registry, a workload that
	// joins or the settings may supply what is missing.
	offline feed.Severity
	// bySettings means that the settings may supply what is missing.
	bySettings bool
}

// Problems returns findings as "ashorectl problems" shows them.
func Problems(list []Finding) []feed.Problem {
	out := make([]feed.Problem, len(list))
	for i, f := range list {
		out[i] = f.Problem
		out[i].Text = fmt.Sprintf("%s: %s [%s]", f.Text, f.Remedy, f.Code)
	}
	return out
}

// Invalid returns a problem of one object, or of a file, as a finding.
func Invalid(p feed.Problem) Finding {
	if p.IsError() {
		return Finding{Problem: p, Code: InvalidObject}
	}
	return Finding{Problem: p, Code: ObjectWarning}
}

// Offline returns the findings for configuration that is read from files alone. Where a registry, a
// workload that joins or the settings may supply what is missing, the severity is Info, and Text
// says so. It is feed.Warning if a name is probably misspelled. settings means that the settings are
// known.
func Offline(list []Finding, settings bool) []Finding {
	out := slices.Clone(list)
	for i := range out {
		if f := &out[i]; f.offline != f.Severity && !(settings && f.bySettings) {
			f.Severity = f.offline
			f.Text += ", unless a registry, a joining workload or the settings supply what is missing"
		}
	}
	return out
}

// sortFindings sorts findings by place.
func sortFindings(list []Finding) {
	slices.SortStableFunc(list, func(a, b Finding) int { return a.Compare(b.Problem) })
}

// precedence says why one of two objects is used.
const precedence = "takes precedence because it is older or sorts first"

// named returns the name of an object and its file, for sentences. It leaves out the line, which
// changes too often.
func named(o *config.Object) string {
	if where := cmp.Or(o.Origin.File, o.Origin.Source); where != "" {
		return fmt.Sprintf("%s (%s)", o.Key, where)
	}
	return o.Key.String()
}

// few returns the first items of a list, for sentences.
func few(list []string) string {
	const limit = 5
	if len(list) <= limit {
		return strings.Join(list, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(list[:limit], ", "), len(list)-limit)
}
