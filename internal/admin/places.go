package admin

import (
	"fmt"
	"net/http"
	"sync"
)

// places bound how many do one thing at a time. Whoever may do less leaves some to those who may do
// more, and one user who is no admin has a quarter, two at least: a script, or somebody who never
// reads his answers, must keep nobody else from work. Safe for concurrent use.
type places struct {
	total int    // set once
	full  string // set once: says that none is left; of how many, and of how many for one user
	tally tally
}

// newPlaces makes so many places. full takes a number and a text.
func newPlaces(total int, full string) *places { return &places{total: total, full: full} }

// asker is who asks, and what they may do.
type asker struct {
	uid  uint32
	role Role
}

// asker is who asks r.
func (s *Server) asker(r *http.Request) asker {
	p, err := peerOf(r)
	if err != nil {
		return asker{} // identified lets nobody through who is not known
	}
	return asker{p.UID, s.cfg.Role(p)}
}

// take takes a place. Errors: ErrBusy.
func (p *places) take(a asker) (leave func(), err error) {
	all, each := p.share(a.role)
	if leave := p.tally.take(a.uid, all, each); leave != nil {
		return leave, nil
	}
	one := ""
	if each < all {
		one = fmt.Sprintf(", or %d of one user", each)
	}
	return nil, NewError(ErrBusy, fmt.Sprintf(p.full, all, one))
}

// share is how many may be taken when one of a role takes another: by all, and by that user.
func (p *places) share(role Role) (all, each int) {
	each = max(2, p.total/4)
	switch role {
	case Admin:
		return p.total, p.total
	case Operator:
		return p.total - max(1, p.total/8), each
	default:
		return p.total - max(1, p.total/4), each
	}
}

// tally counts what users hold. Safe for concurrent use; the zero value counts nothing yet.
type tally struct {
	mu    sync.Mutex
	taken int            // guarded by mu
	users map[uint32]int // guarded by mu: how many each has; none is missing
}

// take counts one more for a user, and returns what takes it back, once; nil: all together have so
// many already, or this one has.
func (t *tally) take(uid uint32, all, each int) (leave func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.taken >= all || t.users[uid] >= each {
		return nil
	}
	if t.users == nil {
		t.users = map[uint32]int{}
	}
	t.taken++
	t.users[uid]++
	return sync.OnceFunc(func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.taken--
		if t.users[uid]--; t.users[uid] == 0 {
			delete(t.users, uid)
		}
	})
}
