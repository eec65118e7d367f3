package consul

// guard is the index of a blocking query, kept as Consul's documentation asks for.
// https://developer.hashicorp.com/consul/api-docs/features/blocking#implementation-details
type guard struct {
	// index is what to wait for more than; zero: ask without waiting.
	index uint64
}

// verdict is what an index says of the answer that it came with.
type verdict uint8

const (
	// same: nothing has changed since the last answer.
	same verdict = iota
	// newer: it is what there is now.
	newer
	// returned: it is what there is now, and the first answer after Consul could not be asked.
	returned
	// restarted: Consul counts anew, after a restoration for instance. It is what there is now, and the next query does not wait.
	restarted
	// uncounted: there is no index, so that waiting for a change is not possible.
	uncounted
)

// take takes in the index of an answer.
func (g *guard) take(index uint64) verdict {
	last := g.index
	switch {
	case index == 0: // waiting for more than zero would not wait at all
		g.index = 0
		return uncounted
	case index < last: // waiting for more than the old one would be for ever
		g.index = 0
		return restarted
	case index == last:
		return same
	}
	g.index = index
	return newer
}
