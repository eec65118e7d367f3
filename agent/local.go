package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"time"

	"google.golang.org/grpc"

	"github.com/ashore-mesh/ashore/agent/relay"
)

// xdsSocket is the path of the unix socket where the agent serves xDS and SDS to Envoy.
func (s *Settings) xdsSocket() string { return filepath.Join(s.runtime(), "xds.sock") }

// agentSocket is the path of the unix socket where the agent serves status and leave to the
// operator's commands.
func (s *Settings) agentSocket() string { return filepath.Join(s.State, "agent.sock") }

// newLocalServer makes the gRPC server for Envoy, without services.
func newLocalServer() *grpc.Server {
	return grpc.NewServer(
		grpc.ForceServerCodecV2(relay.Codec()),
		grpc.MaxRecvMsgSize(maxLocalRequest),
		grpc.MaxHeaderListSize(64<<10),
		grpc.MaxConcurrentStreams(64),
		grpc.ConnectionTimeout(localHandshake),
	)
}

// localHandshake bounds the HTTP/2 handshake: a silent connection delays the agent's end for that
// long.
const localHandshake = 5 * time.Second

// maxLocalRequest bounds one request of Envoy: 100,000 names and a node fit in.
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
