package ads

// Costs in memory, in bytes, rounded up from measurements.
const (
	// nameCost is that of a subscribed name besides its letters.
	nameCost = 64
	// emptyCost is that of an answer of Kind.Empty besides the letters, of which it has copies.
	emptyCost, emptyCopies = 400, 2
	// stateCost is that of a name's state.
	stateCost = 256
	// sentCost is that of a resource in a pending response. The resource itself is shared.
	sentCost = 100
)

// Cost is about how much memory the client takes with the subscription, in bytes: names, answers
// for names that do not exist, states of names, and pending responses. Resources are shared and do not count.
func (s *Subscription) Cost() int {
	names := len(s.names.List())
	cost := s.names.Bytes() + names*nameCost + len(s.states)*stateCost
	if missing := names - s.To.Len(); s.kind.Empty != nil && missing > 0 { // at least so many do not exist
		cost += missing*emptyCost + emptyCopies*s.names.Bytes()
	}
	for _, st := range s.states {
		if st.rejection != nil {
			cost += len(st.rejection.Message)
		}
	}
	if s.rejection != nil {
		cost += len(s.rejection.Message)
	}
	for _, p := range s.pending {
		resources, removals := p.size()
		cost += (resources + removals) * sentCost
	}
	return cost
}
