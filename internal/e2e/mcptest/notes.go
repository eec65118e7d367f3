package mcptest

import (
	"maps"
	"slices"
	"sync"
)

// notes are what a server saw of its clients. The zero value is ready. Safe for concurrent use.
type notes struct {
	mu    sync.Mutex
	nacks []string       // guarded by mu
	acks  int            // guarded by mu
	nodes []string       // guarded by mu
	sent  map[string]int // guarded by mu
}

// heard notes a request: of whom, unless it names nobody, and which answer it takes or refuses.
func (n *notes) heard(node, nonce, words string, rejected bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if node != "" {
		n.nodes = append(n.nodes, node)
	}
	switch {
	case rejected:
		n.nacks = append(n.nacks, words)
	case nonce != "":
		n.acks++
	}
}

// told notes that so many resources of a type were sent.
func (n *notes) told(typ string, count int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.sent == nil {
		n.sent = map[string]int{}
	}
	n.sent[typ] += count
}

// Nacks are the words of refusals.
func (n *notes) Nacks() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.nacks)
}

// Acks counts the answers that were taken.
func (n *notes) Acks() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.acks
}

// Nodes are what clients called themselves, a request each.
func (n *notes) Nodes() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.nodes)
}

// Sent counts the resources that were sent, by type or collection.
func (n *notes) Sent() map[string]int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return maps.Clone(n.sent)
}
