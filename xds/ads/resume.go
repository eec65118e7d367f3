package ads

// acceptClaims takes in what the client has from an earlier stream. Envoy waits for the endpoints of
// a cluster that was just sent, whatever it claims.
func (s *Subscription) acceptClaims(claims map[string]string) {
	s.resumed = len(claims) > 0
	if !s.resumed {
		return
	}
	s.answer = false
	same := make(map[string]struct{}, len(claims)) // names of which nothing has to be sent
	for name, version := range claims {
		next := s.To.Get(name)
		gone, wanted := next == nil, ""
		if gone && s.kind.Empty != nil {
			next = s.kind.Empty(name)
		}
		if next != nil {
			wanted = next.Version()
		}
		switch {
		case !s.names.Covers(name):
		case version == wanted && (s.clusters == nil || !s.clusters.inFlight(name)):
			same[name] = struct{}{}
		case gone:
			s.set(name, deferred).hadKnown = false // it is removed, when that need not wait
			same[name] = struct{}{}
		}
	}
	var missing []string
	lacks := func(name string) {
		if _, ok := same[name]; !ok {
			missing = append(missing, name)
		}
	}
	all := 0
	for r := range s.To.All() {
		if s.names.Covers(r.Name) {
			all++
			lacks(r.Name)
		}
	}
	for _, name := range s.names.List() {
		if s.To.Get(name) == nil {
			lacks(name) // it is answered
		}
	}
	if len(missing) > 32 && len(missing) > all/8 {
		return // all is sent, as to other clients that have nothing
	}
	for _, name := range missing {
		s.set(name, unknown).hadKnown = false
	}
	s.have, s.known = s.To, s.names
}
