package ads

import (
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ashore-mesh/ashore/xds/resource"
)

// standing is how the client's state of one name differs from the set that it otherwise has.
type standing uint8

const (
	// unknown: nobody can tell what the client has; it is sent.
	unknown standing = iota
	// queued: unknown, and sent apart from others because a response that held it was rejected.
	queued
	// refused: the client rejected one version of it and has what it had before.
	refused
	// kept: it exists no more, but the client still has it because its removal waits.
	kept
	// tainted: state of the world only. A response that held it was rejected, for reasons that may
	// lie elsewhere in it. It stands in every response and is not sent for its own sake.
	tainted
	// lagging: it is to be sent, but that waits; the client has what it had before.
	lagging
)

// exception is one name for which the client does not have what its set says.
type exception struct {
	standing standing
	// version is the one that was refused.
	version string
	// old is what the client had before, nil for nothing; oldKnown says whether that is certain.
	old      *resource.Resource
	oldKnown bool
	// unsure: a rejected response held it beside others, and nothing about it was accepted since.
	// The client may have applied that and still name the version it had before.
	unsure bool
	// claimed: the client says that it has some version of it from an earlier stream.
	claimed bool
	// words are the client's own about the refused version, and at is when it said them.
	words string
	at    time.Time
}

// Refusal is a resource that the client does not take.
type Refusal struct {
	Name string
	// Version is the one refused; it is not sent again until it changes.
	Version string
	// Words are the client's own.
	Words string
	At    time.Time
	// Had is what the client had before and still has, as far as HadKnown says that this is
	// certain.
	Had      *resource.Resource
	HadKnown bool
}

// Refusals are the resources that the client does not take, by name.
func (s *Subscription) Refusals() []Refusal {
	var out []Refusal
	for _, name := range s.exceptional() {
		if e := s.exceptions[name]; e.standing == refused || e.standing == tainted && e.words != "" {
			out = append(out, Refusal{Name: name, Version: e.version, Words: e.words, At: e.at, Had: e.old,
				HadKnown: e.oldKnown})
		}
	}
	return out
}

// Kept yields the names whose removal waits.
func (s *Subscription) Kept() iter.Seq[string] { return s.standing(kept) }

// Lagging yields the names of which a change waits.
func (s *Subscription) Lagging() iter.Seq[string] { return s.standing(lagging) }

// standing yields the names that stand so.
func (s *Subscription) standing(st standing) iter.Seq[string] {
	return func(yield func(string) bool) {
		for name, e := range s.exceptions {
			if e.standing == st && !yield(name) {
				return
			}
		}
	}
}

// KeptResources yields what the client has and is to lose, as far as that is known.
func (s *Subscription) KeptResources() iter.Seq[*resource.Resource] {
	return func(yield func(*resource.Resource) bool) {
		for _, e := range s.exceptions {
			if e.standing == kept && e.old != nil && !yield(e.old) {
				return
			}
		}
	}
}

// exceptional are the names of all exceptions, sorted.
func (s *Subscription) exceptional() []string {
	if len(s.exceptions) == 0 {
		return nil
	}
	return slices.Sorted(maps.Keys(s.exceptions))
}

// except makes an exception for name, or changes the one that there is.
func (s *Subscription) except(name string, st standing) *exception {
	e := s.exceptions[name]
	if e == nil {
		e = &exception{old: s.had(name), oldKnown: s.known.Covers(name) || s.fresh}
		if s.exceptions == nil {
			s.exceptions = map[string]*exception{}
		}
		s.exceptions[name] = e
	}
	e.standing = st
	return e
}

// had is what the client has of name by its set, nil for nothing or for what is not known.
func (s *Subscription) had(name string) *resource.Resource {
	if !s.known.Covers(name) {
		return nil
	}
	return s.have.Get(name)
}

// clear ends an exception.
func (s *Subscription) clear(name string) {
	delete(s.exceptions, name)
	if len(s.exceptions) == 0 {
		s.exceptions = nil
	}
}

// Force makes the subscription send names again even if the client has them: Envoy waits for the
// endpoints of a cluster that changed. Before the first request it makes claims of these names
// disbelieved.
func (s *Subscription) Force(names []string) {
	if !s.started {
		s.Distrust(Doubt{Names: names})
		return
	}
	if many := len(names); many > 32 && many > len(s.known.List())/4 {
		s.forget()
		return
	}
	for _, name := range names {
		if !s.known.Covers(name) {
			continue // it is sent anyway
		}
		if e := s.exceptions[name]; e == nil {
			s.except(name, unknown)
		}
	}
}

// forget makes the subscription send everything again, apart from what was refused or waits.
func (s *Subscription) forget() {
	for name, e := range s.exceptions {
		if e.standing == unknown {
			s.clear(name)
		}
	}
	s.have, s.known = resource.Set{}, nil
}

// Doubt is what a client's claims cannot be believed for: responses were on their way, or had been
// rejected, when its last stream ended, so that it may have more than the versions it names.
type Doubt struct {
	All   bool
	Names []string
	// Refused are what it refused of a kind that is Single: it would accept that now without using
	// it. They hold for the same process only.
	Refused []Refusal
}

// Or is the doubt of both.
func (d Doubt) Or(o Doubt) Doubt {
	both := Doubt{All: d.All || o.All, Refused: eitherRefused(d.Refused, o.Refused)}
	if both.All || len(d.Names)+len(o.Names) > maxDoubts || d.bytes()+o.bytes() > maxDoubtBytes {
		both.All = true
	} else {
		both.Names = slices.Concat(d.Names, o.Names)
	}
	return both
}

// None says whether there is no doubt.
func (d Doubt) None() bool { return !d.All && len(d.Names) == 0 && len(d.Refused) == 0 }

// eitherRefused are the refusals of both, the newer of two of one name.
func eitherRefused(a, b []Refusal) []Refusal {
	out := slices.Clone(a)
	for _, r := range b {
		i := slices.IndexFunc(out, func(o Refusal) bool { return o.Name == r.Name })
		switch {
		case i < 0 && len(out) < maxRefused:
			out = append(out, r)
		case i >= 0 && r.At.After(out[i].At):
			out[i] = r
		}
	}
	return out
}

// bytes is how long its names are together.
func (d Doubt) bytes() (n int) {
	for _, name := range d.Names {
		n += len(name)
	}
	return n
}

// maxDoubts is how many names, and maxDoubtBytes how much of them, is doubted before everything is.
const maxDoubts, maxDoubtBytes = 256, 8 << 10

// maxRefused is how many refusals are remembered, and maxRefusedWords how much of what was said of
// each.
const maxRefused, maxRefusedWords = 64, 512

// Distrust adds to what claims in the first request are not believed for.
func (s *Subscription) Distrust(d Doubt) {
	s.doubt = s.doubt.Or(d)
}

// Doubt returns what the client's claims on its next stream cannot be believed for.
func (s *Subscription) Doubt() Doubt {
	if !s.started {
		return s.doubt
	}
	refused := Doubt{Refused: s.remembered()}
	var names []string
	for name, e := range s.exceptions {
		if e.standing == unknown || e.standing == queued || e.standing == lagging && !e.oldKnown || e.unsure {
			names = append(names, name)
		}
	}
	for i := range s.flights {
		if s.flights[i].count()+len(names) > maxDoubts {
			return refused.Or(Doubt{All: true})
		}
		for name := range s.flights[i].all() {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return refused.Or(Doubt{Names: slices.Compact(names)})
}

// remembered are the refusals that the client's next stream has to know of.
func (s *Subscription) remembered() []Refusal {
	if !s.kind.Single {
		return nil
	}
	out := s.Refusals()
	for i := range out {
		out[i].Had = nil
		out[i].Words = strings.Clone(out[i].Words[:min(len(out[i].Words), maxRefusedWords)])
	}
	return eitherRefused(nil, append(out, s.recalled...))
}

// recall takes in what the client refused on an earlier stream, as far as it asked for that.
func (s *Subscription) recall() {
	s.recalled = slices.DeleteFunc(s.recalled, func(r Refusal) bool {
		if !s.names.Covers(r.Name) {
			return false
		}
		if s.known.Covers(r.Name) && s.exceptions[r.Name] == nil {
			return true // it says that it has it
		}
		e := s.except(r.Name, refused)
		e.old, e.oldKnown = nil, false
		e.version, e.words, e.at = r.Version, r.Words, r.At
		return true
	})
}

// Refusing says whether there are refusals.
func (s *Subscription) Refusing() bool {
	for _, e := range s.exceptions {
		if e.standing == refused || e.standing == tainted && e.words != "" {
			return true
		}
	}
	return false
}
