package ads

import (
	"time"

	"github.com/ashore-mesh/ashore/xds/resource"
)

// Status is how far a client is with one type.
type Status struct {
	// Subscribed is how many names it asked for by name; Everything says that it asked for all.
	Subscribed int
	Everything bool
	// Acknowledged names the content of what it accepted last, and AcknowledgedAt is when; empty
	// and zero before the first time. Equal contents have equal names on every replica.
	Acknowledged   string
	AcknowledgedAt time.Time
	// Target names the content that it should have, in the same way; empty before it asked.
	Target string
	// Latest says that it has all that it should, what it refused aside.
	Latest bool
	// InFlight is how many responses it has not answered yet.
	InFlight int
	// Rejections counts the responses that it rejected on this stream, and Rejected is the last
	// one, nil when it accepted something since.
	Rejections uint64
	Rejected   *Rejection
	// Refusals are the resources that it does not take.
	Refusals []Refusal
}

// Status returns how far the client is on the way to to.
func (s *Subscription) Status(to resource.Set) Status {
	st := Status{
		Subscribed: len(s.names.List()), Everything: s.names.All(),
		AcknowledgedAt: s.takenAt,
		Latest:         s.Settled(to),
		InFlight:       len(s.flights),
		Rejections:     s.rejects, Rejected: s.rejected,
		Refusals: s.Refusals(),
	}
	if s.names != nil {
		st.Target = *s.cache.version(to, s.names)
	}
	if !s.takenAt.IsZero() {
		st.Acknowledged = *s.cache.version(s.taken, s.names)
	} else if st.Latest && s.names != nil {
		st.Acknowledged = *s.cache.version(s.have, s.names) // claimed from an earlier stream
	}
	return st
}
