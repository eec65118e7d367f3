package httpserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// Run serves on l until ctx ends, with TLS if srv has a TLSConfig. Active requests then have the
// time drain to finish. The functions of srv.RegisterOnShutdown are called before. Run closes l. It
// returns an error if it cannot serve on l.
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
		err = srv.Close() // a request takes too long
	}
	<-failed
	return err
}
