package ca

import "time"

const (
	// clockSlack is how much a clock may be set between two looks without being doubted.
	clockSlack = time.Minute
	// settled is how long a clock must have gone as time does before what has ended by it is
	// forgotten: a clock that leaps for a while must not cost the mesh its workloads.
	settled = time.Hour
)

// steady watches a clock. The zero value has not looked yet.
type steady struct {
	wall, at time.Time // what the clock said at the last look, and when that was by the time that passes
	since    time.Time // since when the two agree
}

// look says whether the clock, which says wall at this moment, has gone as time does for long
// enough.
func (s *steady) look(wall, at time.Time) bool {
	wall = wall.Round(0) // by itself, whatever has passed
	if drift := wall.Sub(s.wall) - at.Sub(s.at); s.at.IsZero() || drift.Abs() > clockSlack {
		s.since = at
	}
	s.wall, s.at = wall, at
	return at.Sub(s.since) >= settled
}
