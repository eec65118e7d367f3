package feed

import (
	"fmt"
	"time"
)

// Waiting lists the required sources that have not delivered and have no content from before the restart, in the order of
// the list.
func (m *Merger[K, T]) Waiting() []string {
	var out []string
	for _, s := range m.list {
		if s.Required && !s.synced && s.restored.IsZero() {
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
	// Items and Problems count what the source supplies and what is wrong with it. Retained counts the items that are used
	// although the source does not supply them any more.
	Items    int `json:"items"`
	Problems int `json:"problems"`
	Retained int `json:"retained,omitempty"`
	// Stale counts the groups whose current content cannot be used, so that older content is.
	Stale int `json:"stale,omitempty"`
	// LastUpdate is when the source last sent content.
	LastUpdate time.Time `json:"lastUpdate,omitzero"`
	// Error is why the source is down, since ErrorSince; empty: it is not.
	Error      string    `json:"error,omitempty"`
	ErrorSince time.Time `json:"errorSince,omitzero"`
	// LastError is the latest error that is over, since LastErrorEnd; empty: there was none.
	LastError    string    `json:"lastError,omitempty"`
	LastErrorEnd time.Time `json:"lastErrorEnd,omitzero"`
	// Reading is Batch.Reading.
	Reading int `json:"reading,omitempty"`
	// Setting is the name of the source in the settings file. The merger does not know it.
	Setting string `json:"setting,omitempty"`
}

// Status describes all sources, in the order of the list. Its cost does not depend on the number of groups.
func (m *Merger[K, T]) Status() []SourceStatus {
	out := make([]SourceStatus, len(m.list))
	for n, s := range m.list {
		out[n] = SourceStatus{
			Name: s.Name, Required: s.Required, Synced: s.synced,
			Items: s.items, Problems: s.problems, Retained: len(s.removed), Stale: s.stale, LastUpdate: s.lastUpdate,
			Error: s.down, ErrorSince: s.downSince, LastError: s.lastDown, LastErrorEnd: s.lastDownAt, Reading: s.reading,
		}
		if s.down != "" {
			out[n].Problems++
		}
	}
	return out
}

// Problems lists all that is wrong: the problems of groups, sources that are down, items that are retained, and keys that several
// groups define. In no order; see SortProblems. describe says where an item was defined, such as a file and line.
func (m *Merger[K, T]) Problems(describe func(T) string) []Problem {
	var out []Problem
	retained := map[string]struct{}{} // keys
	for _, s := range m.sources {
		out = append(out, s.ownProblems()...)
		for i := range s.removed {
			retained[i.key.String()] = struct{}{}
			if i.removal.reason != "" {
				out = append(out, i.removalProblem(describe))
			}
		}
	}
	for _, s := range m.sources {
		for g := range s.faulty {
			out = append(out, g.allProblems(retained)...)
		}
	}
	if !m.cfg.Union {
		for k := range m.shared {
			out = append(out, duplicates(m.items[k], describe)...)
		}
	}
	return out
}

// ownProblems are those of the source as a whole.
func (s *source[K, T]) ownProblems() []Problem {
	p := Problem{Severity: Warning, Source: s.Name, Since: s.downSince, Stale: s.items > 0 && !s.dropped, Text: s.down}
	switch {
	case !s.listed && s.items > 0:
		p.Text = fmt.Sprintf("the source is not in the settings any more; its %d items stay active until all required sources "+
			"have delivered, or until you run %s", s.items, s.acceptCommand())
		return []Problem{p}
	case s.down == "" && !s.expired:
		return nil
	case s.down == "":
		p.Text, p.Since = "the source has not delivered since the restart", s.restored
	}
	switch {
	case s.dropped:
		p.Severity = Error
		p.Text += fmt.Sprintf("; its items are older than maxAge (%s) and not used", s.MaxAge)
	case s.expired:
		p.Text += fmt.Sprintf("; its items are older than maxAge (%s) and stay active", s.MaxAge)
	case s.items > 0:
		p.Text += "; its items stay active"
	}
	return []Problem{p}
}

// acceptCommand is what an operator runs to accept the removals of a source.
func (s *source[K, T]) acceptCommand() string {
	return fmt.Sprintf("%q", "ashorectl sources accept-removals "+s.Name)
}

// removalProblem says why an item is retained.
func (i *item[K, T]) removalProblem(describe func(T) string) Problem {
	s, r := i.group.source, i.removal
	remedy := "fix that"
	if r.mass {
		remedy = "restore them"
	}
	p := Problem{Severity: Warning, Source: s.Name, Object: i.key.String(), Stale: true, Since: r.at}
	p.Text = fmt.Sprintf("removed from %s, but still active, because %s; %s, or run %s", describe(i.value), r.reason, remedy,
		s.acceptCommand())
	if r.mass && !r.due.IsZero() {
		p.Text += "; otherwise it is removed at " + r.due.UTC().Format(time.RFC3339)
	}
	return p
}

// allProblems are the problems of a group. retained are the keys of items that R3 and R4 retain.
func (g *group[K, T]) allProblems(retained map[string]struct{}) []Problem {
	stale := map[string]struct{}{}
	for _, i := range g.items {
		if i.stale {
			stale[i.key.String()] = struct{}{}
		}
	}
	out := make([]Problem, len(g.problems))
	for n, p := range g.problems {
		if p.Source == "" {
			p.Source = g.source.Name
		}
		_, old := stale[p.Object]
		_, kept := retained[p.Object]
		p.Stale = p.IsError() && (old || kept || !g.unreadable.IsZero() && len(g.items) > 0)
		out[n] = p
	}
	return out
}

// duplicates are problems about all items of one key but the first, which is used.
func duplicates[K Key, T any](list []*item[K, T], describe func(T) string) []Problem {
	used := list[0]
	out := make([]Problem, 0, len(list)-1)
	for _, i := range list[1:] {
		out = append(out, Problem{
			Severity: Warning, Source: i.group.source.Name, Object: i.key.String(),
			Text: fmt.Sprintf("defined in %s of source %s, which is used, and again in %s of source %s, which is not; remove one of them",
				describe(used.value), used.group.source.Name, describe(i.value), i.group.source.Name),
		})
	}
	return out
}
