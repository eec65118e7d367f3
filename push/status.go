package push

import (
	"fmt"
	"maps"
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
	instances := a.instances.Sources()
	if a.partial { // the deriver comes first
		instances[0].Synced = false
	}
	s.Sources = append(s.Sources, instances...)
	s.Problems = append(s.Problems, a.instances.Problems(nil)...)
	for _, at := range slices.SortedFunc(maps.Keys(a.between), place.compare) {
		for _, f := range a.between[at] {
			s.Problems = append(s.Problems, f.problem)
		}
	}
	return s
}

// clash tells of an object that two sources or groups define.
func clash(counts, other *config.Object) feed.Problem {
	return feed.Problem{
		Severity: feed.Error, Source: other.Origin.Source, Object: other.Key.String(), File: other.Origin.File, Line: other.Origin.Line,
		Text: "is defined in " + placeIn(counts) + " too, and that one is in use: remove one of the two",
	}
}

// clashes are those of the objects of one key, what counts first.
func clashes(items []*config.Object) []finding {
	var out []finding
	for i := 1; i < len(items); i++ {
		out = append(out, finding{clash(items[0], items[i]), items[0].Origin.Source + items[0].Origin.File + " " + items[i].Origin.Source + items[i].Origin.File})
	}
	return out
}

// placeIn is where an object was read, for people.
func placeIn(o *config.Object) string {
	switch {
	case o.Origin.File == "":
		return o.Origin.Source
	case o.Origin.Line == 0:
		return o.Origin.File
	default:
		return fmt.Sprintf("%s:%d", o.Origin.File, o.Origin.Line)
	}
}
