package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"time"

	"google.golang.org/grpc"

	"github.com/ashore-mesh/ashore/internal/wholefile"
)

// listenUnix opens a unix socket with a mode. It replaces the socket of an earlier agent: the
// caller holds the lock of the state folder.
func listenUnix(path string, mode fs.FileMode) (net.Listener, error) {
	if err := wholefile.Remove(path); err != nil {
		return nil, fmt.Errorf("remove the socket of an earlier agent: %w", err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	// Until now the folder's mode and the umask protected it.
	if err := os.Chmod(path, mode); err != nil {
		return nil, errors.Join(fmt.Errorf("socket: %w", err), l.Close())
	}
	return l, nil
}

// serveUnix opens a unix socket with a mode, and serves on it.
func serveUnix(ctx context.Context, path string, mode fs.FileMode,
	serve func(context.Context, net.Listener) error) error {
	l, err := listenUnix(path, mode)
	if err != nil {
		return diskError("start", err)
	}
	return serve(ctx, l)
}

// newLocalServer makes the gRPC server for Envoy.
func newLocalServer() *grpc.Server {
	return grpc.NewServer(
		grpc.MaxRecvMsgSize(maxLocalRequest),
		grpc.MaxHeaderListSize(64<<10),
		grpc.MaxConcurrentStreams(64),
		grpc.ConnectionTimeout(localHandshake),
	)
}

// localHandshake is the maximum time for the HTTP/2 handshake. A silent connection delays the
// agent's end for that long.
const localHandshake = 5 * time.Second

// maxLocalRequest is the maximum size of one request of Envoy, in bytes: a node and 100,000 names.
const maxLocalRequest = 16 << 20

// serveLocal serves g on l until ctx ends. Streams end with it.
func serveLocal(ctx context.Context, g *grpc.Server, l net.Listener) error {
	stop := context.AfterFunc(ctx, g.Stop)
	defer stop()
	if err := g.Serve(l); err != nil && !errors.Is(err, grpc.ErrServerStopped) && ctx.Err() == nil {
		return fmt.Errorf("serve %s: %w", l.Addr(), err)
	}
	g.Stop()
	return nil
}
