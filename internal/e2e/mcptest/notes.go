package mcptest

import (
	"maps"
	"slices"
	"sync"
)

// Seen is what a server received and sent.
type Seen struct {
	// Nacks are the texts of all NACKs; Acks counts the ACKs.
	Nacks []string
	Acks  int
	// Nodes are the nodes of the requests that have one.
	Nodes []string
	// Sent counts the resources that were sent, by type or collection.
	Sent map[string]int
}

// notes records what a server receives and sends. The zero value is ready. Safe for concurrent use.
type notes struct {
	mu   sync.Mutex
	seen Seen // guarded by mu
}

// noteRequest records a request: its node, and whether it is an ACK or a NACK.
func (n *notes) noteRequest(node, nonce, words string, rejected bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if node != "" {
		n.seen.Nodes = append(n.seen.Nodes, node)
	}
	switch {
	case rejected:
		n.seen.Nacks = append(n.seen.Nacks, words)
	case nonce != "":
		n.seen.Acks++
	}
}

// noteSent records that resources of a type were sent.
func (n *notes) noteSent(typ string, count int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.seen.Sent == nil {
		n.seen.Sent = map[string]int{}
	}
	n.seen.Sent[typ] += count
}

// Seen returns what was recorded so far.
func (n *notes) Seen() Seen {
	n.mu.Lock()
	defer n.mu.Unlock()
	return Seen{slices.Clone(n.seen.Nacks), n.seen.Acks, slices.Clone(n.seen.Nodes), maps.Clone(n.seen.Sent)}
}
