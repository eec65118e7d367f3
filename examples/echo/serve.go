package main

import (
	"context"
	"net"
	"net/http"
	"time"

	"github.com/ashore-mesh/ashore/internal/httpserver"
	"github.com/ashore-mesh/ashore/internal/task"
)

// run serves on the listeners; t may be nil.
func (c *config) run(ctx context.Context, h, t net.Listener) error {
	parts := []task.Part{{Name: "http", Run: func(ctx context.Context) error { return c.runHTTP(ctx, h) }}}
	if t != nil {
		parts = append(parts, task.Part{Name: "tcp", Run: func(ctx context.Context) error { return c.runTCP(ctx, t) }})
	}
	return task.Run(ctx, parts...)
}

func (c *config) runHTTP(ctx context.Context, l net.Listener) error {
	e := newEcho(c)
	defer e.client.CloseIdleConnections()
	s := &http.Server{Handler: e, ReadHeaderTimeout: 10 * time.Second, Protocols: new(http.Protocols)}
	s.Protocols.SetHTTP1(true)
	s.Protocols.SetUnencryptedHTTP2(true)
	return httpserver.Run(ctx, s, l, c.grace)
}
