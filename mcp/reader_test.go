package mcp

import (
	"context"
	"io"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ashore-mesh/ashore/internal/spiffe"
	"github.com/ashore-mesh/ashore/push"
)

// mute is a stream on which nothing is said.
type mute struct {
	grpc.ServerStream
	ctx context.Context
}

func (m mute) Context() context.Context { return m.ctx }
func (m mute) RecvMsg(any) error        { return io.EOF }

// Before everything is known nobody is told anything: a sink would take that for an empty mesh.
func TestServerNotReady(t *testing.T) {
	t.Parallel()
	c := NewCatalog(CatalogConfig{Readers: Readers{Anybody: true}})
	s, err := NewServer(ServerConfig{Catalog: c, Identify: func(context.Context) (id spiffe.ID, until time.Time, err error) { return id, until, nil }})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.establish(nil, mute{ctx: t.Context()}); status.Code(err) != codes.Unavailable {
		t.Errorf("before the first context: %v, want Unavailable", err)
	}
	c.Publish(push.Objects{})
	if err := s.establish(nil, mute{ctx: t.Context()}); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}
