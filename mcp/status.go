package mcp

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/spiffe"
)

// ReaderStatus is one sink that is served.
type ReaderStatus struct {
	// ID is what it calls itself; empty before it has asked for anything.
	ID string
	// Who is what it proved to be, until Expires; empty and zero where it proves nothing.
	Who     spiffe.ID
	Expires time.Time
	// Peer is the address that it connected from.
	Peer      string
	Connected time.Time
	// Collections are those that it asked for, in that order.
	Collections []CollectionStatus
}

// CollectionStatus is what a sink has of a collection.
type CollectionStatus struct {
	Collection string
	// Kind is what is in it; empty: one that old releases had, and that is always empty.
	Kind config.Kind
	// Incremental says that it takes differences.
	Incremental bool
	// Resources is how many there are now.
	Resources int
	// AcknowledgedAt is when it accepted an answer last; zero: never.
	AcknowledgedAt time.Time
	// Latest says that it has all that there is, or refused just that.
	Latest bool
	// InFlight says that an answer is under way.
	InFlight bool
	// Refusals counts the answers that it refused.
	Refusals uint64
	// Refusal is what it said about the last answer when it refused that, at RefusedAt; empty and zero: it did not.
	Refusal   string
	RefusedAt time.Time
}

// Readers are all who are served, by their IDs.
func (s *Server) Readers() []ReaderStatus {
	s.mu.Lock()
	readers := slices.Collect(maps.Keys(s.streams))
	s.mu.Unlock()
	out := make([]ReaderStatus, len(readers))
	for i, r := range readers {
		out[i] = r.status()
	}
	slices.SortFunc(out, func(a, b ReaderStatus) int {
		return cmp.Or(strings.Compare(a.ID, b.ID), a.Connected.Compare(b.Connected))
	})
	return out
}

// face is what others may see of a reader.
type face struct {
	mu sync.Mutex
	// the following are guarded by mu
	node     string
	until    time.Time
	supplied []supplied
}

// show has others see what the reader has now.
func (r *reader) show() {
	all := make([]supplied, len(r.supply.order))
	for i, at := range r.supply.order {
		all[i] = *at
	}
	r.face.mu.Lock()
	defer r.face.mu.Unlock()
	r.face.node, r.face.supplied = r.node, all
}

// showUntil has others see until when it may read.
func (r *reader) showUntil(until time.Time) {
	r.face.mu.Lock()
	defer r.face.mu.Unlock()
	r.face.until = until
}

func (r *reader) status() ReaderStatus {
	r.face.mu.Lock()
	out := ReaderStatus{ID: r.face.node, Who: r.who, Expires: r.face.until, Peer: r.from, Connected: r.since}
	all := r.face.supplied
	r.face.mu.Unlock()
	for _, at := range all {
		out.Collections = append(out.Collections, r.collection(at))
	}
	return out
}

func (r *reader) collection(at supplied) CollectionStatus {
	to, _ := r.supply.set(at.collection)
	return CollectionStatus{
		Collection: at.collection, Kind: r.cfg.Catalog.collections[at.collection], Incremental: at.incremental, Resources: to.Len(), AcknowledgedAt: at.takenAt,
		Latest:   !at.due && (at.refused && at.refuses == to || !at.refused && at.knows && at.has == to),
		InFlight: at.nonce != "", Refusals: at.refusals, Refusal: at.words, RefusedAt: at.refusedAt,
	}
}
