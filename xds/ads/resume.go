package ads

import "github.com/ashore-mesh/ashore/xds/resource"

// acceptClaims takes in what the client has from an earlier stream, except for what it waits for.
func (s *Subscription) acceptClaims(claims map[string]string) {
	s.resumed = len(claims) > 0
	if !s.resumed {
		return
	}
	s.answer = false
	var missing []string // names of which something has to be sent
	compare := func(name string, next *resource.Resource) {
		gone, wanted := next == nil, ""
		if gone && s.kind.Empty != nil {
			next = s.kind.Empty(name)
		}
		if next != nil {
			wanted = next.Version()
		}
		version, claimed := claims[name]
		switch {
		case claimed && version == wanted && (s.awaited == nil || !s.awaited(name)):
		case claimed && gone:
			s.set(name, deferred).hadKnown = false // it is removed, when that need not wait
		default:
			missing = append(missing, name)
		}
	}
	all := 0
	for r := range s.To.All() {
		if s.names.Covers(r.Name) {
			all++
			compare(r.Name, r)
		}
	}
	for _, name := range s.names.List() {
		if s.To.Get(name) == nil {
			compare(name, nil) // it is answered
		}
	}
	for name := range claims {
		if s.names.All() && !s.names.Has(name) && s.To.Get(name) == nil {
			compare(name, nil)
		}
	}
	if len(missing) > 32 && len(missing) > all/8 {
		return // all is sent, as to other clients that have nothing
	}
	for _, name := range missing {
		s.set(name, unknown).hadKnown = false
	}
	s.have, s.known = s.To, s.names
	s.accepted = s.To
}
