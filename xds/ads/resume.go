package ads

import "maps"

// Unsettled is what the client's next stream has to know of this one.
type Unsettled struct {
	// Names had a response that was pending or rejected when the stream ended, or their endpoints
	// were due. Envoy may have applied a part of it, and still claims the former version. "*" is
	// every name.
	Names []string
	// Rejected are the resources that the client rejected, of a Kind that is Single.
	Rejected []Rejected
}

// The limits of what is remembered: for more names every name counts.
const maxUnsettled, maxUnsettledBytes, maxRejectedMessage = 256, 8 << 10, 512

// Empty reports whether there is nothing to know.
func (u Unsettled) Empty() bool { return len(u.Names)+len(u.Rejected) == 0 }

// Unsettled returns what the client's next stream has to know. Its size is limited.
func (s *Subscription) Unsettled() (u Unsettled) {
	size := 0
	add := func(name string) {
		u.Names = append(u.Names, name)
		if size += len(name); len(u.Names) > maxUnsettled || size > maxUnsettledBytes {
			u.Names, size = []string{star}, 0
		}
	}
	for name, st := range s.states {
		if st.is != deferred || !st.hadKnown {
			add(name)
		}
	}
	for _, p := range s.pending {
		for name := range p.names() {
			add(name)
		}
	}
	if s.kind.Single {
		u.Rejected = s.Rejected()
		u.Rejected = u.Rejected[:min(len(u.Rejected), maxUnsettled/4)]
	}
	for i := range u.Rejected {
		u.Rejected[i].Message = clip(u.Rejected[i].Message, maxRejectedMessage)
	}
	return u
}

// Resume takes in what is known of an earlier stream. Call it before the first request. Claims for
// its names are not accepted. Rejected secrets stay rejected: Envoy would accept them now without
// using them.
func (s *Subscription) Resume(u Unsettled) {
	for _, name := range u.Names {
		s.suspect(name)
	}
	for _, r := range u.Rejected {
		if s.earlier == nil {
			s.earlier = map[string]Rejected{}
		}
		s.earlier[r.Name] = r
	}
}

// suspect makes a claim for a name count for nothing.
func (s *Subscription) suspect(name string) {
	if s.suspects == nil {
		s.suspects = map[string]struct{}{}
	}
	s.suspects[name] = struct{}{}
}

// acceptClaims takes in what the client has from an earlier stream.
func (s *Subscription) acceptClaims(claims map[string]string) {
	s.resumed = len(claims) > 0
	suspects := s.suspects
	s.suspects = nil
	for name := range suspects {
		if s.names.Covers(name) && !s.names.Has(name) && s.To.Get(name) == nil && name != star {
			s.set(name, deferred).hadKnown = false // it is removed, when that need not wait
		}
	}
	if !s.resumed {
		return
	}
	s.answer = false
	same := make(map[string]struct{}, len(claims)) // names of which nothing has to be sent
	for name, version := range claims {
		_, suspect := suspects[name]
		next := s.To.Get(name)
		if next == nil && s.kind.Empty != nil {
			next = s.kind.Empty(name)
		}
		switch {
		case !s.names.Covers(name):
		case next == nil && version != "":
			s.set(name, deferred).hadKnown = false
			same[name] = struct{}{}
		case !suspect && (next == nil || next.Version() == version):
			same[name] = struct{}{}
		}
	}
	var missing []string
	lacks := func(name string) {
		if _, ok := same[name]; !ok {
			missing = append(missing, name)
		}
	}
	wanted := 0
	for r := range s.To.All() {
		if s.names.Covers(r.Name) {
			wanted++
			lacks(r.Name)
		}
	}
	for _, name := range s.names.List() {
		if s.To.Get(name) == nil {
			lacks(name) // it is answered
		}
	}
	if _, all := suspects[star]; all || len(missing) > 32 && len(missing) > wanted/8 {
		return // all is sent, as to other clients that have nothing
	}
	for _, name := range missing {
		s.set(name, unknown).hadKnown = false
	}
	s.have, s.known = s.To, s.names
}

// restoreRejected gives names that were rejected on an earlier stream their state again, as far as
// the client subscribes to them now and does not claim to have them.
func (s *Subscription) restoreRejected() {
	maps.DeleteFunc(s.earlier, func(name string, r Rejected) bool {
		covered := s.names.Covers(name)
		if covered && !(s.known.Covers(name) && s.states[name] == nil) {
			st := s.set(name, rejected)
			st.had, st.hadKnown = nil, false
			st.version, st.message, st.at = r.Version, r.Message, r.At
		}
		return covered
	})
}
