package mcp

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/ashore-mesh/ashore/mcp/legacypb"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// supply is the older protocol on one stream, from the end that has resources. One answer of a collection is under way at a
// time, and the answer to it asks for the next. No I/O; not safe for concurrent use.
type supply struct {
	find   func(collection string) (resource.Set, bool)
	order  []*supplied // in the order in which they were asked for
	nonces uint64
}

// supplied is one collection on one stream.
type supplied struct {
	collection string
	// incremental says that the sink takes differences.
	incremental bool
	// asks says that the sink waits for an answer, and due that there has to be one even when nothing has changed.
	asks, due bool
	nonce     string       // of the answer under way
	sent      resource.Set // by it
	has       resource.Set // what the sink acknowledged
	knows     bool         // it has has, and nothing else
	refuses   resource.Set // what it refused last
	refused   bool
	words     string    // its own about that
	refusedAt time.Time // zero unless refused
	refusals  uint64    // so far
	takenAt   time.Time // when it acknowledged something last
}

// maxCollections bounds the collections of one stream.
const maxCollections = 128

// receipt is what became of a request.
type receipt int

const (
	anew    receipt = iota // it asks anew
	taken                  // it accepts an answer
	refused                // it refuses an answer
	stale                  // it speaks of an answer that is none of ours, or not the last
)

// bygone are the beginnings of collections that no kind of today is in. Sinks of old releases wait until they have heard
// of them too.
func bygone() []string {
	return []string{"istio/authentication/", "istio/rbac/", "istio/mixer/", "istio/policy/", "istio/config/", "istio/mesh/", "istio/networking/v1alpha3/synthetic/", "k8s/"}
}

// receive takes in a request that comes now. Errors: it asks for what there cannot be.
func (s *supply) receive(r *legacypb.RequestResources, now time.Time) (receipt, error) {
	at, err := s.supplied(r)
	if err != nil || at == nil {
		return stale, err
	}
	switch {
	case r.ResponseNonce == "":
		*at = supplied{collection: at.collection, incremental: r.Incremental, asks: true, due: true, refusals: at.refusals}
		return anew, nil
	case at.nonce == "" || r.ResponseNonce != at.nonce:
		return stale, nil
	}
	at.nonce, at.asks, at.incremental = "", true, r.Incremental
	if r.ErrorDetail != nil {
		at.refuses, at.refused, at.knows = at.sent, true, false // nobody knows what it took of it
		at.words, at.refusedAt, at.refusals = clip(r.ErrorDetail.GetMessage()), now, at.refusals+1
		return refused, nil
	}
	at.has, at.knows, at.refused = at.sent, true, false
	at.takenAt, at.words, at.refusedAt = now, "", time.Time{}
	return taken, nil
}

// supplied finds the collection of a request; nil when it speaks of one that was never asked for.
func (s *supply) supplied(r *legacypb.RequestResources) (*supplied, error) {
	for _, at := range s.order {
		if at.collection == r.Collection {
			return at, nil
		}
	}
	if r.ResponseNonce != "" {
		return nil, nil
	}
	if _, ok := s.set(r.Collection); !ok {
		return nil, fmt.Errorf("unsupported collection %q", clip(r.Collection))
	}
	if len(s.order) == maxCollections {
		return nil, fmt.Errorf("a stream may ask for %d collections", maxCollections)
	}
	at := &supplied{collection: r.Collection}
	s.order = append(s.order, at)
	return at, nil
}

// set is what there is of a collection.
func (s *supply) set(collection string) (resource.Set, bool) {
	if set, ok := s.find(collection); ok {
		return set, true
	}
	for _, prefix := range bygone() {
		if strings.HasPrefix(collection, prefix) {
			return resource.Set{}, true
		}
	}
	return resource.Set{}, false
}

// next returns the next answer that there is to give; nil: none.
func (s *supply) next() *legacypb.Resources {
	for _, at := range s.order {
		if !at.asks {
			continue
		}
		to, _ := s.set(at.collection)
		switch {
		case at.due:
		case at.refused && at.refuses == to: // it is not sent again until it changes
			continue
		case at.knows && at.has == to:
			continue
		}
		if at.knows && at.incremental {
			if r := s.difference(at, to); r != nil {
				return r
			}
			continue
		}
		return s.send(at, to, resources(to, nil), nil, false)
	}
	return nil
}

// difference is the answer that leads a sink to a set; nil when it has that already.
func (s *supply) difference(at *supplied, to resource.Set) *legacypb.Resources {
	changed := resources(to, at.has.Get)
	var removed []string
	for r := range at.has.All() {
		if to.Get(r.Name) == nil {
			removed = append(removed, r.Name)
		}
	}
	if len(changed) == 0 && len(removed) == 0 {
		at.has = to
		return nil
	}
	return s.send(at, to, changed, removed, true)
}

// send takes note of an answer.
func (s *supply) send(at *supplied, to resource.Set, changed []byte, removed []string, incremental bool) *legacypb.Resources {
	s.nonces++
	at.asks, at.due, at.nonce, at.sent = false, false, strconv.FormatUint(s.nonces, 10), to
	r := &legacypb.Resources{Collection: at.collection, Nonce: at.nonce, RemovedResources: removed, Incremental: incremental}
	r.ProtoReflect().SetUnknown(changed) // encoded once for all who are told
	return r
}

// resources are the encoded entries of Resources.resources, without those that had returns in the same version.
func resources(of resource.Set, had func(name string) *resource.Resource) []byte {
	var out []byte
	for r := range of.All() {
		if had != nil {
			if old := had(r.Name); old == r || old != nil && old.Version() == r.Version() {
				continue
			}
		}
		out = protowire.AppendBytes(protowire.AppendTag(out, fieldResources, protowire.BytesType), r.Body())
	}
	return out
}
