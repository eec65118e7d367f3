package feed

import "time"

// expiry returns when the items of a source exceed MaxAge. Zero if the source is up, has no MaxAge,
// or has expired already.
func (s *source[K, T]) expiry() time.Time {
	if s.MaxAge == 0 || s.status.Error == "" || s.expired {
		return time.Time{}
	}
	return s.status.ErrorSince.Add(s.MaxAge)
}

// expireSources stops using the items of sources that exceed MaxAge.
func (m *Merger[K, T]) expireSources(now time.Time) {
	for _, s := range m.list {
		if at := s.expiry(); !at.IsZero() && !now.Before(at) {
			m.setExpired(s, true)
		}
	}
}

// setExpired sets whether the items of a source are not used because they are older than MaxAge.
func (m *Merger[K, T]) setExpired(s *source[K, T], expired bool) {
	if s.expired == expired {
		return
	}
	s.expired = expired
	for _, g := range s.groups {
		for _, i := range g.all() {
			m.changed[i.key] = struct{}{}
		}
	}
}
