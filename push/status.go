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
	// Conflicts counts in how much sources contradict one another: objects that are defined and do not count, because another
	// definition does, and what is said of services and does not count, because another source decides.
	Conflicts int
	// Builds counts the contexts that were made.
	Builds int
}

// Status may be called at any time from anywhere.
func (a *Assembler) Status() Status {
	s, objects, instances, between := a.copyStatus()
	feed.SortProblems(objects)
	feed.SortProblems(instances)
	for _, p := range instances {
		if p.Contradicts {
			s.Conflicts++
		}
	}
	s.Problems = append(objects, instances...)
	for _, at := range slices.SortedFunc(maps.Keys(between), place.compare) {
		for _, f := range between[at] {
			s.Problems = append(s.Problems, f.problem)
		}
	}
	return s
}

// copyStatus is what Status tells, with problems in no order: sorting many takes long, and what changes waits as long
// as they are being copied.
func (a *Assembler) copyStatus() (s Status, objects, instances []feed.Problem, between map[place][]finding) {
	a.mu.Lock()
	defer a.mu.Unlock()
	sources := slices.DeleteFunc(a.instances.Sources(), func(s feed.SourceStatus) bool {
		return a.cfg.Derive != nil && s.Name == a.cfg.relays() || a.moves.source(s.Name) != s.Name
	})
	if a.partial { // the deriver comes first
		sources[0].Synced = false
	}
	s = Status{Builds: a.builds, Conflicts: a.objects.Clashes(), Sources: append(a.objects.Sources(), sources...)}
	for _, n := range a.conflicts {
		s.Conflicts += n
	}
	for i := range s.Sources {
		s.Sources[i].Required = !slices.Contains(a.cfg.Sources.Optional, s.Sources[i].Name)
	}
	objects = a.objects.Problems(clash)
	for i := range objects {
		a.enforce(&objects[i])
	}
	return s, objects, a.instances.Problems(nil), maps.Clone(a.between)
}

// clash tells of an object that two sources or groups define.
func clash(counts, other *config.Object) feed.Problem {
	return feed.Problem{
		Severity: feed.Error, Source: other.Origin.Source, Object: other.Key.String(), File: other.Origin.File, Line: other.Origin.Line,
		Text: "is defined in " + placeBeside(counts, other) + " too, and that one is in use: remove one of the two",
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

// placeBeside is placeIn, with the source where other is in a file of another one.
func placeBeside(o, other *config.Object) string {
	if other.Origin.File == "" {
		return placeIn(o)
	}
	return placeOutside(o, other.Origin.Source)
}

// placeOutside is placeIn, with the source where that is another one than source.
func placeOutside(o *config.Object, source string) string {
	if o.Origin.File != "" && o.Origin.Source != source {
		return placeIn(o) + " of " + o.Origin.Source
	}
	return placeIn(o)
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
