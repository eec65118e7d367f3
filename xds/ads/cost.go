package ads

import "github.com/ashore-mesh/ashore/xds/resource"

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
// for names that do not exist, and pending responses. Resources are shared and do not count.
func (s *Subscription) Cost() int {
	cost := s.names.Bytes() + len(s.names.List())*nameCost + len(s.states)*stateCost
	if s.kind.Empty != nil {
		cost += s.names.emptyAnswers(s.To)
	}
	if s.rejection != nil {
		cost += len(s.rejection.Message)
	}
	for _, p := range s.pending {
		cost += (p.resources() + p.removals()) * sentCost
	}
	return cost
}

// emptyAnswers is the cost of the answers for names that are not in to. It is counted once for all
// who subscribe to the same names, because they share these answers.
func (n *Names) emptyAnswers(to resource.Set) int {
	if n == nil {
		return 0
	}
	if counted := n.emptyCost.Load(); counted != 0 {
		return int(counted - 1)
	}
	cost, c := 0, cursor{items: to.Shared.Items()}
	for _, name := range n.list {
		if c.get(name) == nil && to.Own.Get(name) == nil {
			cost += emptyCost + emptyCopies*len(name)
		}
	}
	n.emptyCost.Store(int64(cost) + 1)
	return cost
}
