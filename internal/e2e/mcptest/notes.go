package mcptest

import (
	"maps"
	"slices"
	"sync"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
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

// request is a request of state of the world, or of differences.
type request interface {
	GetTypeUrl() string
	GetNode() *corev3.Node
	GetResponseNonce() string
	GetErrorDetail() *rpcstatus.Status
}

// noteRequest records a request: its node, and whether it is an ACK or a NACK.
func (n *notes) noteRequest(r request) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if node := r.GetNode().GetId(); node != "" {
		n.seen.Nodes = append(n.seen.Nodes, node)
	}
	switch {
	case r.GetErrorDetail() != nil:
		n.seen.Nacks = append(n.seen.Nacks, r.GetErrorDetail().GetMessage())
	case r.GetResponseNonce() != "":
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
