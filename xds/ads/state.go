package ads

import (
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
	// rejection is the version that the client rejected, nil for none. It stays while the name waits
	// for its turn.
	rejection *Rejected
}

// Rejected is a resource that the client rejected. The version is not sent again until it changes.
type Rejected struct {
	Name, Version string
	// Message is the client's.
	Message string
	At      time.Time
	// Patches are those of the resource. The first Changed ones differ from what the client acknowledged
	// last; zero: that is not known. Of others the newest is first.
	Patches []*resource.Patch
	Changed int
}

// Rejected returns the resources that the client rejected, by name.
func (s *Subscription) Rejected() []Rejected {
	var out []Rejected
	for _, st := range s.states {
		if st.is == rejected {
			out = append(out, *st.rejection)
		}
	}
	slices.SortFunc(out, func(a, b Rejected) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// set gives a name a state, and notes what the client has if it had none.
func (s *Subscription) set(name string, is resourceState) *nameState {
	st := s.states[name]
	if st == nil {
		st = &nameState{}
		st.had, st.hadKnown = s.current(name)
		s.keep(name, st)
	}
	st.is = is
	return st
}

// keep gives a name a state in place of the one that it has.
func (s *Subscription) keep(name string, st *nameState) {
	if s.states == nil {
		s.states = map[string]*nameState{}
	}
	s.states[name] = st
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
