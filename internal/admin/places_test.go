package admin

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/ashore-mesh/ashore/internal/testlog"
)

// unread is an asker who reads nothing of the answer until released.
type unread struct {
	httptest.ResponseRecorder
	entered chan<- bool
	release <-chan struct{}
}

func (u *unread) Write([]byte) (int, error) {
	u.entered <- u.Code != http.StatusServiceUnavailable
	<-u.release
	return 0, http.ErrHandlerTimeout
}

func (u *unread) WriteHeader(code int) { u.Code = code }

// asking is a question of a user.
func asking(uid uint32, path string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	return r.WithContext(context.WithValue(r.Context(), peerKey{}, known{peer: Peer{UID: uid}}))
}

// Users who ask for much and read none of it keep neither other users nor admins from asking.
func TestUnreadAnswersKeepNobodyOut(t *testing.T) {
	t.Parallel()
	roles := map[uint32]Role{0: Admin, 1: Operator, 2: Viewer, 3: Viewer}
	s := New(Config{Backend: &fake{}, Log: testlog.New(t), Role: func(p Peer) Role {
		if p.UID >= 100 {
			return Viewer
		}
		return roles[p.UID]
	}})
	h := s.identified(s.routes())
	entered, release, ended := make(chan bool), make(chan struct{}), make(chan struct{})
	hoard := func(uid uint32) (served int) {
		for range maxUserSeats {
			go func() {
				h.ServeHTTP(&unread{entered: entered, release: release}, asking(uid, "/v1/objects?kind=Gateway"))
				ended <- struct{}{}
			}()
			if <-entered {
				served++
			}
		}
		return served
	}
	code := func(uid uint32) int {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, asking(uid, "/v1/version"))
		return w.Code
	}
	if served := hoard(2); served != 4 || code(3) != http.StatusOK {
		t.Errorf("one viewer has %d places, and another is answered %d", served, code(3))
	}
	asked := maxUserSeats
	for uid := range uint32(4) {
		hoard(100 + uid)
		asked += maxUserSeats
	}
	if code(3) == http.StatusOK {
		t.Error("viewers take more than their share")
	}
	if code(1) != http.StatusOK || code(0) != http.StatusOK {
		t.Errorf("beside viewers who read nothing an operator is answered %d, and root %d", code(1), code(0))
	}
	close(release)
	for range asked {
		<-ended
	}
	if got := code(3); got != http.StatusOK {
		t.Errorf("afterwards: %d", got)
	}
}

// What each role may have of the places, together and one user alone; and what is given back can be
// taken again.
func TestPlaces(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		total     int
		role      Role
		all, each int
	}{
		{16, Viewer, 12, 4}, {16, Operator, 14, 4}, {16, Admin, 16, 16},
		{8, Viewer, 6, 2}, {8, Operator, 7, 2}, {8, Admin, 8, 8},
		{4, Viewer, 3, 2}, {4, Operator, 3, 2}, {4, Admin, 4, 4},
	} {
		p := newPlaces(tc.total, "%d are here%s: try again")
		one, all := 0, 0
		for uid := uint32(1); uid < 50; uid++ {
			for {
				_, err := p.take(asker{uid, tc.role})
				if err != nil {
					break
				}
				if all++; uid == 1 {
					one++
				}
			}
		}
		if all != tc.all || one != tc.each {
			t.Errorf("%d places: role %v has %d, one user %d; want %d and %d", tc.total, tc.role, all, one, tc.all,
				tc.each)
		}
	}
	p := newPlaces(16, "%d are here%s: try again")
	var leave func()
	for range 4 {
		leave, _ = p.take(asker{7, Viewer})
	}
	if _, err := p.take(asker{7, Viewer}); !errors.Is(err, ErrBusy) ||
		!strings.Contains(err.Error(), "12 are here, or 4 of one user: try again") {
		t.Errorf("one too many: %v", err)
	}
	leave()
	leave() // a second time it is nothing
	if _, err := p.take(asker{7, Viewer}); err != nil {
		t.Errorf("after one left: %v", err)
	}
	if _, err := p.take(asker{7, Viewer}); err == nil {
		t.Error("what was given back is not one place")
	}
}
