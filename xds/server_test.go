package xds_test

import (
	"context"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/ashore-mesh/ashore/internal/testlog"
	"github.com/ashore-mesh/ashore/xds"
	"github.com/ashore-mesh/ashore/xds/resource"
	"github.com/ashore-mesh/ashore/xds/xdstest"
)

// plane is a control plane in a test: a server on a loopback port, and a mesh made by hand.
type plane struct {
	t      *testing.T
	server *xds.Server
	mesh   *xdstest.Mesh
	addr   string
	stop   func()
}

// newPlane serves until the test ends or stop is called.
func newPlane(t *testing.T, mesh *xdstest.Mesh, addr string, change func(*xds.Config),
	options ...grpc.ServerOption) *plane {
	t.Helper()
	if mesh == nil {
		mesh = xdstest.NewMesh()
	}
	cfg := xds.Config{Generator: mesh, Log: testlog.New(t), RemovalWait: time.Second}
	if change != nil {
		change(&cfg)
	}
	s, err := xds.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer(append(xds.ServerOptions(), options...)...)
	s.Register(g)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 2)
	go func() { done <- s.Run(ctx) }()
	go func() { done <- g.Serve(l) }()
	p := &plane{t: t, server: s, mesh: mesh, addr: l.Addr().String()}
	stopped := false
	p.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		g.Stop()
		<-done
		<-done
	}
	t.Cleanup(p.stop)
	return p
}

// publish makes resources all that there is.
func (p *plane) publish(resources ...*resource.Resource) {
	p.server.Publish(p.mesh.Context(xdstest.Layers(resources...)), time.Now())
}

// eventually waits until f returns "", which says what is missing.
func eventually(t *testing.T, f func() string) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		missing := f()
		if missing == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after 20s: %s", missing)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
