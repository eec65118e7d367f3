package push

import (
	"fmt"
	"slices"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
)

// Status is how the sources stand and all that is wrong with what they say.
type Status struct {
	Sources  []feed.SourceStatus
	Problems []feed.Problem
	// Builds counts the contexts that were made.
	Builds int
}

// Status may be called at any time from anywhere.
func (a *Assembler) Status() Status {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := Status{Builds: a.builds, Sources: a.objects.Sources(), Problems: a.objects.Problems(clash)}
	s.Sources = append(s.Sources, a.instances.Sources()...)
	s.Problems = slices.Concat(s.Problems, a.instances.Problems(nil))
	return s
}

// clash tells of an object that two sources or groups define.
func clash(counts, other *config.Object) feed.Problem {
	where := func(o *config.Object) string {
		if o.Origin.File == "" {
			return o.Origin.Source
		}
		return fmt.Sprintf("%s:%d", o.Origin.File, o.Origin.Line)
	}
	return feed.Problem{
		Severity: feed.Error, Source: other.Origin.Source, Object: other.Key.String(), File: other.Origin.File, Line: other.Origin.Line,
		Text: "is defined in " + where(counts) + " too, and that one is in use: remove one of the two",
	}
}
