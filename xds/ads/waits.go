package ads

import (
	"iter"
	"time"

	"github.com/ashore-mesh/ashore/xds/resource"
)

// Waits says what of a difference has to wait. Nil functions: nothing has.
type Waits struct {
	// Removal says whether the removal of a name waits.
	Removal func(name string) bool
	// Change says whether next waits. The client goes on with had, which is nil when it had nothing
	// of that name, or nobody knows what. Not for kinds that are Whole.
	Change func(had, next *resource.Resource) bool
}

func (w Waits) removal(name string) bool { return w.Removal != nil && w.Removal(name) }

func (w Waits) change(had, next *resource.Resource) bool {
	return w.Change != nil && w.Change(had, next)
}

// since says since when names wait.
type since map[string]time.Time

// renewed is it for the names that wait now; those that did before count from then.
func (s since) renewed(names iter.Seq[string], now time.Time) (out since) {
	for name := range names {
		at, ok := s[name]
		if !ok {
			at = now
		}
		if out == nil {
			out = since{}
		}
		out[name] = at
	}
	return out
}

// over says whether a name waits, and has done so for as long as it may.
func (s since) over(name string, bound time.Duration, now time.Time) bool {
	at, ok := s[name]
	return ok && now.Sub(at) >= bound
}

// running says whether a name waits and may go on.
func (s since) running(name string, bound time.Duration, now time.Time) bool {
	at, ok := s[name]
	return ok && now.Sub(at) < bound
}

// end is the sooner of wait and the next end of one.
func (s since) end(wait, bound time.Duration, now time.Time) time.Duration {
	for _, at := range s {
		if left := at.Add(bound).Sub(now); left > 0 {
			wait = sooner(wait, left)
		}
	}
	return wait
}

// sooner is the smaller of two waits, where zero means never.
func sooner(a, b time.Duration) time.Duration {
	b = max(b, time.Millisecond)
	if a == 0 {
		return b
	}
	return min(a, b)
}
