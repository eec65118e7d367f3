package feed

import "time"

// expiry is when the items of a source become older than MaxAge; zero: they do not, or are.
func (s *source[K, T]) expiry() time.Time {
	if s.MaxAge == 0 || s.status.Error == "" || s.expired {
		return time.Time{}
	}
	return s.status.ErrorSince.Add(s.MaxAge)
}

// dropped says that the items of a source are not used because they are older than MaxAge.
func (s *source[K, T]) dropped() bool { return s.expired && s.DropStale }

// expireSources notes whose items are older than MaxAge, and stops using them if DropStale is set.
func (m *Merger[K, T]) expireSources(now time.Time) {
	for _, s := range m.list {
		if at := s.expiry(); at.IsZero() || now.Before(at) {
			continue
		}
		s.expired = true
		if !s.DropStale {
			continue
		}
		for i := range s.removed() {
			m.endRemoval(i)
		}
		for _, g := range s.groups {
			for _, i := range g.items {
				m.remove(i)
			}
		}
	}
}

// unexpire ends what expireSources did.
func (m *Merger[K, T]) unexpire(s *source[K, T]) {
	if s.dropped() {
		for _, g := range s.groups {
			for _, i := range g.items {
				m.add(i)
			}
		}
	}
	s.expired = false
}
