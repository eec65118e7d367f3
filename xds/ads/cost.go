package ads

import "github.com/ashore-mesh/ashore/xds/resource"

// What things cost in memory, in bytes, rounded up from what was measured.
const (
	// nameCost is that of a subscribed name besides its letters.
	nameCost = 64
	// emptyCost is that of an answer to a name of which nothing is known, as Kind.Empty makes it,
	// besides the letters, of which it has several copies.
	emptyCost, emptyCopies = 400, 2
	// exceptionCost is that of an exception.
	exceptionCost = 256
	// sentCost is that of a resource in a response which the client has not acknowledged. The
	// resource itself is shared.
	sentCost = 100
)

// Cost is about how much memory a client takes with the subscription, in bytes: names, answers to
// those of which nothing is known, and responses that are not acknowledged. The resources
// themselves are shared and do not count. to is what the client should have.
func (s *Subscription) Cost(to resource.Set) int {
	cost := s.names.cost() + len(s.exceptions)*exceptionCost
	if s.kind.Empty != nil {
		cost += s.names.answers(to)
	}
	if s.rejected != nil {
		cost += len(s.rejected.Message)
	}
	for i := range s.flights {
		cost += s.flights[i].count() * sentCost
	}
	return cost
}

// CostOf is about how much more memory it takes at most to receive a request, in bytes, besides the
// bytes that it lies in.
func (s *Subscription) CostOf(r *Request, to resource.Set) int {
	cost := (r.unsubscribes + r.claimed) * nameCost
	if r.Rejected != nil {
		for i := range s.flights {
			cost += s.flights[i].count() * exceptionCost
		}
	}
	if n := s.cache.names.lookup(r.sum); n != nil {
		if n != s.names {
			cost += n.cost()
		}
		return cost
	}
	names, _ := r.named(r.subscribe)
	for b := range names {
		cost += nameCost + len(b)
		if s.kind.Empty != nil && to.Get(string(b)) == nil {
			cost += emptyCost + emptyCopies*len(b)
		}
	}
	return cost
}

// cost is what the names cost by themselves.
func (n *Names) cost() int { return n.Bytes() + len(n.List())*nameCost }

// answers is what the answers cost to those names of which to has nothing. It is counted once for
// all who subscribe to the same names, since they share these answers.
func (n *Names) answers(to resource.Set) int {
	if n == nil {
		return 0
	}
	if known := n.answersCost.Load(); known != 0 {
		return int(known - 1)
	}
	cost, c := 0, cursor{items: to.Shared.Items()}
	for _, name := range n.list {
		if c.get(name) == nil && to.Own.Get(name) == nil {
			cost += emptyCost + emptyCopies*len(name)
		}
	}
	n.answersCost.Store(int64(cost) + 1)
	return cost
}
