package mcptest

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ashore-mesh/ashore/mcp/legacypb"
)

// Legacy is a source of the older protocol as Istio's was, defects included: one row of numbers for all collections of
// a stream, by which the first answer of the second collection is a difference already; what a sink claims is not read.
type Legacy struct {
	legacypb.UnimplementedResourceSourceServer
	// Store is what it serves; required.
	*Store
	// Differences has it send those where they are asked for.
	Differences bool
	// Unsupported is a collection that it does not know.
	Unsupported string
	// Cut, when it is more than 0, ends each stream after so many answers.
	Cut int

	notes
}

// Register has g serve it.
func (l *Legacy) Register(g *grpc.Server) { legacypb.RegisterResourceSourceServer(g, l) }

// LegacyStream is a stream of either service: ResourceSource's server, or ResourceSink's client.
type LegacyStream interface {
	Send(*legacypb.Resources) error
	Recv() (*legacypb.RequestResources, error)
	Context() context.Context
}

// EstablishResourceStream is what a sink calls.
func (l *Legacy) EstablishResourceStream(st grpc.BidiStreamingServer[legacypb.RequestResources, legacypb.Resources]) error {
	return l.Talk(st)
}

// legacyStream is the state of one stream.
type legacyStream struct {
	*Legacy
	st      LegacyStream
	watches map[string]*legacyWatch // by collection
	nonces  int
}

// legacyWatch is a collection that was asked for.
type legacyWatch struct {
	nonce       string
	has         map[string]string // versions by name
	armed, diff bool
	asked       bool
}

// Talk serves one stream until it ends.
func (l *Legacy) Talk(st LegacyStream) error {
	wake, stop := l.watch()
	defer stop()
	requests := received(st.Context(), st.Recv)
	s := &legacyStream{Legacy: l, st: st, watches: map[string]*legacyWatch{}}
	for {
		select {
		case r, ok := <-requests:
			if !ok {
				return nil
			}
			if err := s.asked(r); err != nil {
				return err
			}
		case <-wake:
			for name, w := range s.watches {
				if !w.armed {
					continue
				}
				if err := s.send(name, w); err != nil {
					return err
				}
			}
		}
	}
}

// asked takes in a request.
func (s *legacyStream) asked(r *legacypb.RequestResources) error {
	switch r.Collection {
	case "$triggerCollection":
		return nil
	case s.Unsupported:
		return status.Errorf(codes.InvalidArgument, "unsupported collection %q", r.Collection)
	}
	w := s.watches[r.Collection]
	if w == nil {
		w = &legacyWatch{}
		s.watches[r.Collection] = w
	}
	s.heard(r.SinkNode.GetId(), r.ResponseNonce, r.ErrorDetail.GetMessage(), r.ErrorDetail != nil)
	w.diff = r.Incremental
	if r.ResponseNonce != w.nonce && r.ResponseNonce != "" {
		return nil
	}
	w.armed = true
	if r.ErrorDetail != nil {
		return nil
	}
	return s.send(r.Collection, w)
}

// send sends a collection, or what has changed of it, unless nothing has.
func (s *legacyStream) send(collection string, w *legacyWatch) error {
	now := map[string]string{}
	r := &legacypb.Resources{Collection: collection, Incremental: s.Differences && w.diff && s.nonces > 0}
	for _, res := range s.list(collection) {
		now[res.Metadata.Name] = res.Metadata.Version
		if !r.Incremental || w.has[res.Metadata.Name] != res.Metadata.Version {
			r.Resources = append(r.Resources, res)
		}
	}
	for name := range w.has {
		if _, ok := now[name]; !ok && r.Incremental {
			r.RemovedResources = append(r.RemovedResources, name)
		}
	}
	if w.asked && len(r.Resources)+len(r.RemovedResources) == 0 && len(now) == len(w.has) {
		return nil
	}
	s.nonces++
	if s.Cut > 0 && s.nonces > s.Cut {
		return status.Error(codes.Internal, "killed")
	}
	r.Nonce, w.nonce, w.has, w.armed, w.asked = fmt.Sprint(s.nonces), fmt.Sprint(s.nonces), now, false, true
	s.told(collection, len(r.Resources))
	return s.st.Send(r)
}
