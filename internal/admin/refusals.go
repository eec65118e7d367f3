package admin

import (
	"sync"
	"time"
)

const (
	// refusalBurst is how many refusals of one user are recorded at once, and refusalPace how often another one is:
	// whoever may connect must not fill the audit log.
	refusalBurst = 50
	refusalPace  = 10 * time.Second
	// maxRefused bounds the users that are remembered; when there are more, all are forgotten.
	maxRefused = 4096
)

// refusals counts those of each user. The zero value knows nobody. Safe for concurrent use.
type refusals struct {
	mu    sync.Mutex
	users map[uint32]*refused // guarded by mu
}

// refused is what is known of one user.
type refused struct {
	left   int       // how many may be recorded at once
	since  time.Time // when left last grew
	silent int       // how many were not recorded
}

// take says whether a refusal of a user is to be recorded, and how many before it were not.
func (r *refusals) take(uid uint32, now time.Time) (record bool, silent int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.users == nil || len(r.users) >= maxRefused {
		r.users = map[uint32]*refused{}
	}
	u := r.users[uid]
	if u == nil {
		u = &refused{left: refusalBurst, since: now}
		r.users[uid] = u
	}
	if n := int(now.Sub(u.since) / refusalPace); n > 0 {
		u.left, u.since = min(refusalBurst, u.left+n), u.since.Add(time.Duration(n)*refusalPace)
	}
	if u.left == 0 {
		u.silent++
		return false, 0
	}
	u.left--
	silent, u.silent = u.silent, 0
	return true, silent
}
