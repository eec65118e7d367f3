package ads

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ashore-mesh/ashore/xds/resource"
)

// resourceState is why the client does not have a resource as its set says.
type resourceState uint8

const (
	// unknown: it is not certain what the client has. The resource is sent.
	unknown resourceState = iota
	// rejected: the client rejected one version, which is not sent again.
	rejected
	// deferred: a change or removal waits for something else, or for its turn.
	deferred
)

// nameState is the state of one name.
type nameState struct {
	is resourceState
	// had is what the client has, nil for nothing; hadKnown means that this is certain.
	had      *resource.Resource
	hadKnown bool
	// alone means that it is sent in a response of its own: another one that had it was rejected.
	alone bool
	// since is when it began to wait.
	since time.Time
	// version is the rejected one, with the client's message and when it came. They stay while the
	// name waits for its turn.
	version, message string
	at               time.Time
}

// Rejected is a resource that the client rejected. The version is not sent again until it changes.
type Rejected struct {
	Name, Version string
	// Message is the client's.
	Message string
	At      time.Time
}

// Rejected returns the resources that the client rejected, by name.
func (s *Subscription) Rejected() []Rejected {
	var out []Rejected
	for name, st := range s.states {
		if st.is == rejected {
			out = append(out, Rejected{name, st.version, st.message, st.at})
		}
	}
	slices.SortFunc(out, func(a, b Rejected) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// names of all states, sorted.
func (s *Subscription) stateNames() []string {
	if len(s.states) == 0 {
		return nil
	}
	return slices.Sorted(maps.Keys(s.states))
}

// set gives a name a state, and notes what the client has if it had none.
func (s *Subscription) set(name string, is resourceState) *nameState {
	st := s.states[name]
	if st == nil {
		st = &nameState{}
		st.had, st.hadKnown = s.current(name)
		if s.states == nil {
			s.states = map[string]*nameState{}
		}
		s.states[name] = st
	}
	st.is = is
	return st
}

// clear ends the state of a name: the client has it as its set says.
func (s *Subscription) clear(name string) {
	if delete(s.states, name); len(s.states) == 0 {
		s.states = nil
	}
}

// dropStates ends the states of names that are not subscribed any more.
func (s *Subscription) dropStates() {
	for name := range s.states {
		if !s.names.Covers(name) {
			s.clear(name)
		}
	}
}

// current is what the client has of a name, nil for nothing, once all pending responses are
// acknowledged; known means that this is certain.
func (s *Subscription) current(name string) (had *resource.Resource, known bool) {
	if st := s.states[name]; st != nil {
		return st.had, st.hadKnown
	}
	if s.known.Covers(name) {
		return s.have.Get(name), true
	}
	return nil, !s.resumed
}

// acceptClaims takes in what the client has from an earlier stream.
func (s *Subscription) acceptClaims(claims map[string]string) {
	if s.resumed = len(claims) > 0; !s.resumed {
		return
	}
	s.answer = false
	same := make(map[string]struct{}, len(claims)) // names of which nothing has to be sent
	for name, version := range claims {
		_, suspect := s.suspects[name]
		next := s.To.Get(name)
		if next == nil && s.kind.Empty != nil {
			next = s.kind.Empty(name)
		}
		switch {
		case !s.names.Covers(name):
		case next == nil && version != "":
			s.set(name, deferred).hadKnown = false // its removal may have to wait
			same[name] = struct{}{}
		case !suspect && (next == nil || next.Version() == version):
			same[name] = struct{}{}
		}
	}
	s.suspects = nil
	var missing []string
	lacks := func(name string) {
		if _, ok := same[name]; !ok {
			missing = append(missing, name)
		}
	}
	wanted := 0
	for r := range s.To.All() {
		if s.names.Covers(r.Name) {
			wanted++
			lacks(r.Name)
		}
	}
	for _, name := range s.names.List() {
		if s.To.Get(name) == nil {
			lacks(name) // it is answered
		}
	}
	if len(missing) > 32 && len(missing) > wanted/8 {
		return // all is sent, as to other clients that have nothing
	}
	for _, name := range missing {
		s.set(name, unknown).hadKnown = false
	}
	s.have, s.known = s.To, s.names
}

// restoreRejected gives names that were rejected on an earlier stream their state again, as far as
// the client subscribes to them now and does not claim to have them.
func (s *Subscription) restoreRejected() {
	maps.DeleteFunc(s.earlier, func(name string, r Rejected) bool {
		covered := s.names.Covers(name)
		if covered && !(s.known.Covers(name) && s.states[name] == nil) {
			st := s.set(name, rejected)
			st.had, st.hadKnown = nil, false
			st.version, st.message, st.at = r.Version, r.Message, r.At
		}
		return covered
	})
}
