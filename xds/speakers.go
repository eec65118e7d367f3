package xds

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/ashore-mesh/ashore/registry"
)

// membership is the registration of a stream's workload.
type membership struct {
	key     registry.RegistrationKey
	session string
	stream  *stream               // who speaks
	as      registry.Registration // what it said

	report registry.Report // what it reported last; guarded by speakers.mu
}

// speakers are the streams that speak for registered workloads. A proxy that connects anew has two
// for a while, and the one that it gives up may be the one that was heard last: when that ends, the
// other one speaks. The zero value has none.
type speakers struct {
	mu sync.Mutex
	of map[registry.RegistrationKey][]*membership // guarded by mu; the latest last
}

func (s *speakers) add(m *membership) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of == nil {
		s.of = map[registry.RegistrationKey][]*membership{}
	}
	s.of[m.key] = append(s.of[m.key], m)
}

// note remembers a report for when m speaks again.
func (s *speakers) note(m *membership, h registry.Report) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m.report = h
}

// remove takes m out and returns the membership that speaks for the workload now; nil if there is
// none.
func (s *speakers) remove(m *membership) *membership {
	s.mu.Lock()
	defer s.mu.Unlock()
	left := slices.DeleteFunc(s.of[m.key], func(o *membership) bool { return o == m })
	if len(left) == 0 {
		delete(s.of, m.key)
		return nil
	}
	s.of[m.key] = left
	for _, o := range slices.Backward(left) {
		if !o.stream.expelled.Load() {
			return o
		}
	}
	return nil
}

// latest returns what m reported last.
func (s *speakers) latest(m *membership) registry.Report {
	s.mu.Lock()
	defer s.mu.Unlock()
	return m.report
}

// reports are what streams reported last of their workloads.
func (s *speakers) reports() map[*stream]registry.Report {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make(map[*stream]registry.Report, len(s.of))
	for _, all := range s.of {
		for _, m := range all {
			out[m.stream] = m.report
		}
	}
	return out
}

// has says whether m is still there.
func (s *speakers) has(m *membership) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.of[m.key], m)
}

// transfer registers a workload for a stream that is open, after another one that spoke for it has
// ended.
func (s *Server) transfer(ctx context.Context, successor *membership) error {
	rt := s.cfg.Runtime
	if err := rt.Connect(ctx, successor.as); err != nil {
		return err
	}
	// A report that came before Connect was refused, because it named another session. It is
	// repeated here.
	if report := s.speakers.latest(successor); report.State != registry.NotReported {
		if err := rt.Report(ctx, successor.key, successor.session, report); err != nil &&
			!errors.Is(err, registry.ErrSession) {
			return err
		}
	}
	if s.speakers.has(successor) {
		return nil
	}
	// it ended meanwhile, and was not registered then
	if err := rt.Disconnect(ctx, successor.key, successor.session); err != nil && !errors.Is(err, registry.ErrSession) {
		return err
	}
	return nil
}
