package server

import (
	"context"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/ashore-mesh/ashore/internal/connlimit"
	"github.com/ashore-mesh/ashore/internal/spiffe"
	"github.com/ashore-mesh/ashore/internal/unfinished"
)

// unauthenticated is a connection without a certificate. It is closed after a while, unless a token
// on one of its streams makes it one of a workload.
type unauthenticated struct {
	raw   net.Conn         // immutable
	conn  *unfinished.Conn // immutable
	timer *time.Timer      // immutable

	mu     sync.Mutex
	closed bool       // guarded by mu
	member membership // guarded by mu; zero: of no workload
}

// await returns a connection that is closed after unauthenticatedTime.
func (t limitedTLS) await(raw, conn net.Conn) net.Conn {
	u := &unauthenticated{raw: raw}
	address := raw.RemoteAddr().String()
	u.timer = time.AfterFunc(unauthenticatedTime, func() { _ = conn.Close() }) // its server notices
	u.conn = unfinished.NewConn(connlimit.NewConn(conn, func() {
		t.unauthenticated.CompareAndDelete(address, u)
		u.close()
	}), unfinished.NewBudget(unauthenticatedBytes), u.exceeded)
	t.unauthenticated.Store(address, u)
	return u.conn
}

// identified makes the connection of a call one of the workload that a token of the call proves.
// Errors: the status ResourceExhausted when the workload has too many.
func (t limitedTLS) identified(ctx context.Context, id spiffe.ID) error {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}
	found, _ := t.unauthenticated.Load(p.Addr.String())
	u, ok := found.(*unauthenticated)
	if !ok {
		return nil // it is closed
	}
	m, err := u.enter(func() (membership, error) { return t.enter(id, "", u.raw) })
	if err != nil {
		return status.Error(codes.ResourceExhausted, err.Error())
	}
	if m.budget != nil {
		u.conn.Move(m.budget)
	}
	return nil
}

// enter calls f, unless the connection is one of a workload already. Then it returns none.
func (u *unauthenticated) enter(f func() (membership, error)) (m membership, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closed || u.member.leave != nil {
		return m, nil
	}
	if m, err = f(); err == nil {
		u.timer.Stop()
		u.member = m
	}
	return m, err
}

func (u *unauthenticated) close() {
	u.timer.Stop()
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closed = true; u.member.leave != nil {
		u.member.leave()
	}
}

func (u *unauthenticated) exceeded() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.member.exceeded != nil {
		u.member.exceeded()
	}
}
