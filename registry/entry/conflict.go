package entry

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/registry"
)

// conflicts returns a warning if ServiceEntry o sets other options for a host than first, which
// takes precedence.
func conflicts(first *config.Object, s *registry.Service, o *config.Object, other *registry.Service) []feed.Problem {
	var texts []string
	for _, d := range registry.Differences(s, other) {
		switch d.Field {
		case "ports":
			texts = append(texts, "its "+d.Text)
		case "resolution":
			texts = append(texts, "its resolution "+d.Text+"; its endpoints are not used")
		default:
			texts = append(texts, "its "+d.Field+" "+d.Text)
		}
	}
	if !slices.Equal(s.ExportTo, other.ExportTo) {
		texts = append(texts, fmt.Sprintf("its exportTo is %q, not %q; its endpoints are not used",
			other.ExportTo, s.ExportTo))
	}
	if !slices.Equal(s.SubjectAltNames, other.SubjectAltNames) {
		texts = append(texts, fmt.Sprintf("its subjectAltNames are %q, not %q", other.SubjectAltNames,
			s.SubjectAltNames))
	}
	if len(texts) == 0 {
		return nil
	}
	reason := "it is older"
	if first.Created.Equal(o.Created) {
		reason = "it is first by name"
	}
	return []feed.Problem{{
		Severity: feed.Warning, Source: cmp.Or(o.Origin.Source, source),
		Object: o.Key.String(), Field: "spec.hosts", File: o.Origin.File, Line: o.Origin.Line,
		Text: fmt.Sprintf("host %s is also declared by %s, which sets its options because %s: %s; make the two agree",
			s.Host, first.Key, reason, strings.Join(texts, "; ")),
	}}
}
