package agent

import (
	"container/list"
	"net"
	"net/http"
	"sync"
)

// connLimiter bounds the connections of a server. One more than that closes the connection whose
// state has not changed for longest: whoever opens many and asks nothing keeps nobody else out.
type connLimiter struct {
	most int // set once

	mu     sync.Mutex
	order  list.List                  // guarded by mu: of net.Conn, the latest change last
	places map[net.Conn]*list.Element // guarded by mu
}

func newConnLimiter(most int) *connLimiter {
	return &connLimiter{most: most, places: map[net.Conn]*list.Element{}}
}

// note is for http.Server.ConnState.
func (l *connLimiter) note(c net.Conn, state http.ConnState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at, ok := l.places[c]; ok {
		l.order.Remove(at)
		delete(l.places, c)
	}
	if state == http.StateClosed || state == http.StateHijacked {
		return
	}
	l.places[c] = l.order.PushBack(c)
	if l.order.Len() > l.most {
		oldest := l.order.Remove(l.order.Front()).(net.Conn)
		delete(l.places, oldest)
		_ = oldest.Close() // its own goroutine sees that
	}
}
