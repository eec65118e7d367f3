package mcp

import "time"

// lapse is for how long a server has to stand by something still before it is believed, over several connections: what it stood
// by on the ones before counts, less the time in between, for it may have been another one then. The zero value knows of no
// connection before. Not safe for concurrent use.
type lapse struct {
	left  time.Duration // when the connection ended
	ended time.Time     // zero: there was none
}

// resume is how long it is on a connection of now; whole is how long it is without one before.
func (l *lapse) resume(now time.Time, whole time.Duration) time.Duration {
	if l.ended.IsZero() {
		return whole
	}
	return min(l.left+max(now.Sub(l.ended), 0), whole)
}

// pause notes that a connection ended on which it would have been believed at a time.
func (l *lapse) pause(now, at time.Time) { l.left, l.ended = max(at.Sub(now), 0), now }

// forget has the time begin anew: the server did not stand by it.
func (l *lapse) forget() { *l = lapse{} }
