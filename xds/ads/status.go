package ads

import "time"

// Status is what a client has of one type.
type Status struct {
	// Subscribed is how many names it asked for by name; Everything means that it asked for all.
	Subscribed int
	Everything bool
	// Acknowledged identifies the content that it accepted last, and AcknowledgedAt is when; empty
	// and zero before the first time. Equal contents have equal versions on every replica.
	Acknowledged   string
	AcknowledgedAt time.Time
	// Target identifies the content that it should have; empty before it asked.
	Target string
	// Latest means that it has all that it should, except for what it rejected.
	Latest bool
	// Pending is how many responses it has not answered.
	Pending int
	// Rejections counts the responses that it rejected on this stream, and Rejection is the last
	// one, nil if it accepted something since.
	Rejections uint64
	Rejection  *Rejection
	// Rejected are the resources that it rejected.
	Rejected []Rejected
}

// Status returns what the client has.
func (s *Subscription) Status() Status {
	st := Status{
		Subscribed: len(s.names.List()), Everything: s.names.All(),
		AcknowledgedAt: s.acceptedAt,
		Latest:         s.Settled(),
		Pending:        len(s.pending),
		Rejections:     s.rejections, Rejection: s.rejection,
		Rejected: s.Rejected(),
	}
	if s.names != nil {
		st.Target = *s.cache.version(s.To, s.names)
	}
	if !s.acceptedAt.IsZero() {
		st.Acknowledged = *s.cache.version(s.accepted, s.names)
	} else if st.Latest && s.names != nil {
		st.Acknowledged = *s.cache.version(s.have, s.names) // claimed from an earlier stream
	}
	return st
}
