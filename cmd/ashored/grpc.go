package main

import (
	"context"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
)

// drainTime is how long streams may take to end by themselves when the program does.
const drainTime = 2 * time.Second

// handshakeTime is how long a connection may take to speak TLS, where there is any, and HTTP/2.
const handshakeTime = 20 * time.Second

// serveGRPC serves srv on l, through which all connections of out come, until ctx ends. What srv
// serves has to end its streams by itself then; after drainTime all connections are cut off, those
// that have said nothing yet too.
func serveGRPC(ctx context.Context, srv *grpc.Server, l net.Listener, out *exits) error {
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(l) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	cut := time.AfterFunc(drainTime, func() {
		out.closeAll()
		srv.Stop()
	})
	defer cut.Stop()
	srv.GracefulStop()
	<-failed
	return nil
}
