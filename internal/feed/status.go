package feed

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"
)

// Waiting returns the required sources that have never synced, not even before a restart.
func (m *Merger[K, T]) Waiting() []string {
	var out []string
	for _, s := range m.list {
		if s.Required && !s.delivered {
			out = append(out, s.Name)
		}
	}
	return out
}

// SourceStatus describes a source for operators.
type SourceStatus struct {
	Name string `json:"name"`
	// Required means that serving waits for the source.
	Required bool `json:"required"`
	// Synced means that the source has delivered its first Full batch since the start.
	Synced bool `json:"synced"`
	// Items is the number of items that the source supplies.
	Items int `json:"items"`
	// Problems is the number of problems of the source and its groups.
	Problems int `json:"problems"`
	// Retained is the number of items that are used although the source no longer supplies them.
	Retained int `json:"retained,omitempty"`
	// Stale is the number of groups with last known good content.
	Stale int `json:"stale,omitempty"`
	// LastUpdate is when the source last sent content.
	LastUpdate time.Time `json:"lastUpdate,omitzero"`
	// Error is why the source is down, since ErrorSince. Empty if it is not down.
	Error      string    `json:"error,omitempty"`
	ErrorSince time.Time `json:"errorSince,omitzero"`
	// Reading is Batch.Reading.
	Reading int `json:"reading,omitempty"`
	// Folder is that of a source of files. The merger does not set it.
	Folder string `json:"folder,omitempty"`
}

// Status returns the status of all sources, in the order of the list.
func (m *Merger[K, T]) Status() []SourceStatus {
	out := make([]SourceStatus, len(m.list))
	unused := map[*source[K, T]]int{}
	for _, i := range m.duplicates() {
		unused[i.group.source]++
	}
	for n, s := range m.list {
		out[n] = s.status
		out[n].Name, out[n].Required = s.Name, s.Required
		out[n].Items, out[n].Problems = s.items, unused[s]
		if s.status.Error != "" {
			out[n].Problems++
		}
		for g := range s.faulty {
			out[n].Problems += len(g.problems)
			out[n].Retained += len(g.removed)
			if slices.ContainsFunc(g.items, func(i *item[K, T]) bool { return i.Stale }) {
				out[n].Stale++
			}
		}
	}
	return out
}

// Problems returns the problems of groups, sources that are down, retained items, and keys that
// several groups define. They are in no order; see SortProblems. describe returns where an item was
// defined, such as a file and line.
func (m *Merger[K, T]) Problems(describe func(T) string) []Problem {
	var out []Problem
	old := m.outdated()
	for _, s := range m.sources {
		if p := s.problem(); p.Text != "" {
			out = append(out, p)
		}
		for g := range s.faulty {
			for _, p := range g.problems {
				_, stale := old[p.Object]
				p.Stale = p.IsError() && (stale || !g.Unreadable.IsZero() && len(g.items) > 0)
				p.Source = cmp.Or(p.Source, s.Name)
				out = append(out, p)
			}
		}
		out = append(out, s.retainedProblems(describe)...)
	}
	for used, i := range m.duplicates() {
		text := fmt.Sprintf("defined in %s, which is used, and again in %s, which is not; remove one of them",
			used.group.source.title(describe(used.Item)), i.group.source.title(describe(i.Item)))
		out = append(out, Problem{Severity: Error, Source: i.group.source.Name, Object: i.key.String(), Text: text})
	}
	return out
}

// duplicates yields each item that is not used because another one takes precedence, after that
// one.
func (m *Merger[K, T]) duplicates() iter.Seq2[*item[K, T], *item[K, T]] {
	return func(yield func(used, unused *item[K, T]) bool) {
		if m.cfg.Union { // all are used together
			return
		}
		for k := range m.shared {
			list := m.items[k]
			for _, i := range list[1:] {
				if !yield(list[0], i) {
					return
				}
			}
		}
	}
}

// outdated returns the keys of stale items.
func (m *Merger[K, T]) outdated() map[string]struct{} {
	out := map[string]struct{}{}
	for _, s := range m.sources {
		for g := range s.faulty {
			for _, i := range g.all() {
				if i.Stale || i.lost() {
					out[i.key.String()] = struct{}{}
				}
			}
		}
	}
	return out
}

// problem describes why the source's items may be stale. Text is empty if they are not.
func (s *source[K, T]) problem() Problem {
	p := Problem{Severity: Warning, Source: s.Name, Stale: true, Text: s.status.Error, Since: s.status.ErrorSince}
	switch {
	case s.rank == unlisted && s.items > 0:
		p.Text = fmt.Sprintf("the source is not in the settings any more; its items (%d) stay active until all "+
			"required sources have delivered, or until you run %s", s.items, s.acceptCommand())
	case p.Text != "":
		p.Text += "; its items stay active"
	}
	return p
}

// acceptCommand returns the command that accepts the removals of a source.
func (s *source[K, T]) acceptCommand() string {
	return fmt.Sprintf("%q", "ashorectl sources accept-removals "+s.Name)
}

// maxRetainedProblems is the greatest number of items with the same reason that have a problem
// each. More have one in common.
const maxRetainedProblems = 10

// retainedProblems returns why items of the source are retained.
func (s *source[K, T]) retainedProblems(describe func(T) string) (out []Problem) {
	byReason := map[string][]*item[K, T]{}
	for i := range s.removed() {
		if i.reason != "" {
			byReason[i.reason] = append(byReason[i.reason], i)
		}
	}
	for _, items := range byReason {
		if len(items) > maxRetainedProblems {
			out = append(out, commonProblem(items))
			continue
		}
		for _, i := range items {
			p := i.retained("removed from " + describe(i.Item))
			p.Object = i.key.String()
			out = append(out, p)
		}
	}
	return out
}

// commonProblem returns one problem for items retained for the same reason.
func commonProblem[K Key, T any](items []*item[K, T]) Problem {
	keys := map[K]time.Time{}
	first := items[0] // removed first
	for _, i := range items {
		keys[i.key] = i.At
		if i.At.Before(first.At) {
			first = i
		}
	}
	return first.retained(countAndNames(keys) + " removed")
}

// countAndNames returns "1 item (Thing x) was", or "12 items (Thing a, Thing b, Thing c, ...)
// were".
func countAndNames[K Key](keys map[K]time.Time) string {
	names := make([]string, 0, len(keys))
	for k := range keys {
		names = append(names, k.String())
	}
	slices.Sort(names)
	if len(names) == 1 {
		return fmt.Sprintf("1 item (%s) was", names[0])
	}
	if len(names) > 3 {
		names = append(names[:3], "...")
	}
	return fmt.Sprintf("%d items (%s) were", len(keys), strings.Join(names, ", "))
}

// retained returns a problem that says why an item is retained. removed says what was removed.
func (i *item[K, T]) retained(removed string) Problem {
	s := i.group.source
	reason, remedy := i.reason, "fix that"
	if i.Mass {
		remedy = "restore them"
		if name := s.unreadable(); name != "" {
			reason, remedy = reason+", and "+name+" cannot be read", "fix that"
		}
	}
	p := Problem{Severity: Warning, Source: s.Name, Stale: true, Since: i.At}
	p.Text = fmt.Sprintf("%s, but still active, because %s; %s, or run %s", removed, reason, remedy, s.acceptCommand())
	if !i.due.IsZero() && i.Mass {
		p.Text += "; otherwise the removal takes effect at " + i.due.UTC().Format(time.RFC3339)
	}
	return p
}

// unreadable returns the name of the first group that cannot be read. Empty if all can.
func (s *source[K, T]) unreadable() (name string) {
	for g := range s.faulty {
		if !g.Unreadable.IsZero() && (name == "" || g.name < name) {
			name = g.name
		}
	}
	return name
}
