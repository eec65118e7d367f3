package ads

import "time"

// Status is what a client has of one type.
type Status struct {
	// Subscribed is how many names it asked for by name; Everything means that it asked for all.
	Subscribed int
	Everything bool
	// AcknowledgedAt is when it accepted a response last; zero before the first time.
	AcknowledgedAt time.Time
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
	return Status{
		Subscribed: len(s.names.List()), Everything: s.names.All(),
		AcknowledgedAt: s.acceptedAt,
		Latest:         s.Settled(),
		Pending:        len(s.pending),
		Rejections:     s.rejections, Rejection: s.rejection,
		Rejected: s.Rejected(),
	}
}
