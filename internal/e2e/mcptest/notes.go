package mcptest

import (
	"maps"
	"slices"
	"sync"
)

// notes records the requests of the clients of a server. The zero value is ready. Safe for
// concurrent use.
type notes struct {
	mu    sync.Mutex
	nacks []string       // guarded by mu
	acks  int            // guarded by mu
	nodes []string       // guarded by mu
	sent  map[string]int // guarded by mu
}

// noteRequest records a request: its node, and whether it is an ACK or a NACK.
func (n *notes) noteRequest(node, nonce, words string, rejected bool) {
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

// noteSent records that resources of a type were sent.
func (n *notes) noteSent(typ string, count int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.sent == nil {
		n.sent = map[string]int{}
	}
	n.sent[typ] += count
}

// Nacks returns the texts of all NACKs.
func (n *notes) Nacks() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.nacks)
}

// Acks returns the number of ACKs.
func (n *notes) Acks() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.acks
}

// Nodes returns the node of each request.
func (n *notes) Nodes() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.nodes)
}

// Sent returns the number of resources sent, by type or collection.
func (n *notes) Sent() map[string]int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return maps.Clone(n.sent)
}
