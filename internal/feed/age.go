package feed

import "time"

// expireSources notes which sources are down for longer than MaxAge, and stops using their items if that is set.
func (m *Merger[K, T]) expireSources(c *change[K, T]) {
	for _, s := range m.list {
		if at := s.nextExpiry(); at.IsZero() || c.now.Before(at) {
			continue
		}
		s.expired = true
		if !s.DropStale {
			continue
		}
		s.dropped = true
		for i := range s.removed {
			m.endRemoval(i, c)
		}
		for _, g := range s.groups {
			for _, i := range g.items {
				m.remove(i, c)
			}
		}
	}
}

// nextExpiry is when the items of a source become too old; zero: they do not, or it is known that they are.
func (s *source[K, T]) nextExpiry() time.Time {
	switch {
	case s.MaxAge == 0, s.expired && (s.dropped || !s.DropStale):
		return time.Time{}
	case !s.synced && !s.restored.IsZero():
		return s.restored.Add(s.MaxAge)
	case s.down != "":
		return s.downSince.Add(s.MaxAge)
	}
	return time.Time{}
}

// NextExpiry is when to call Expire next; zero: not before the next Apply.
func (m *Merger[K, T]) NextExpiry() time.Time {
	next := m.nextRemoval
	for _, s := range m.list {
		if at := s.nextExpiry(); !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next
}
