package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

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
	ended := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() {
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.grace)
		defer cancel()
		err := s.Shutdown(grace)
		if errors.Is(err, context.DeadlineExceeded) {
			err = s.Close()
		}
		ended <- err
	})
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		if !stop() {
			err = errors.Join(err, <-ended)
		}
		return fmt.Errorf("serve: %w", err)
	}
	return <-ended
}
