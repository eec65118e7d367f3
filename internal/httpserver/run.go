package httpserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// Run serves on l until ctx ends, by TLS when srv has a TLSConfig. Requests under way then have
// drain to finish; what srv.RegisterOnShutdown was given is called when that begins. l is closed.
// Errors: l can be served no more.
func Run(ctx context.Context, srv *http.Server, l net.Listener, drain time.Duration) error {
	serve := srv.Serve
	if srv.TLSConfig != nil {
		serve = func(l net.Listener) error { return srv.ServeTLS(l, "", "") }
	}
	failed := make(chan error, 1)
	go func() { failed <- serve(l) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), drain)
	defer cancel()
	err := srv.Shutdown(end)
	if errors.Is(err, context.DeadlineExceeded) {
		err = srv.Close() // a long request: cut it off
	}
	<-failed
	return err
}
