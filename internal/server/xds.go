package server

import (
	"context"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/ashore-mesh/ashore/ca"
	"github.com/ashore-mesh/ashore/internal/connlimit"
	"github.com/ashore-mesh/ashore/internal/settings"
	"github.com/ashore-mesh/ashore/internal/spiffe"
	"github.com/ashore-mesh/ashore/registry/shared"
	"github.com/ashore-mesh/ashore/xds"
	"github.com/ashore-mesh/ashore/xds/gen"
)

const (
	// drainTime is how long streams may take to end when the program stops.
	drainTime = 2 * time.Second
	// handshakeTime is how long a connection may take for TLS and HTTP/2. A stop waits for
	// handshakes.
	handshakeTime = 10 * time.Second
)

// newXDS makes the xDS server. id and objects may be nil.
func (s *Server) newXDS(id *identity, workloads *shared.Runtime, objects xds.Objects) (err error) {
	c := xds.Config{
		Generator: gen.New(), Objects: objects, Runtime: workloads, RegisterAnybody: s.cfg.Development,
		WorkloadStreams: workloadConnections, WorkloadBytes: workloadBytes,
		Log: s.log, Registerer: s.registry, Audit: s.audit.Record,
		MayDebug: s.inRootNamespace, Replica: settings.MachineName(),
	}
	if id != nil {
		c.Verify, c.Revoked = id.verify, id.peers.Revoked
		c.Workload, c.Joined = ca.WorkloadName, id.joined
		c.Token = func(ctx context.Context) (who spiffe.ID, expires time.Time, err error) {
			if who, expires, err = id.issuer.Identify(ctx); err == nil {
				err = s.connections.identified(ctx, who)
			}
			return who, expires, err
		}
		if id.access != nil {
			c.MayReadSecrets = id.access.MayRead
		}
	}
	if s.proxies, err = xds.New(c); err != nil {
		return err
	}
	s.run("xds", s.proxies.Run)
	return nil
}

// serveXDS serves xDS on the open addresses, and the certificate authority beside it where there is
// TLS.
func (s *Server) serveXDS(id *identity) {
	timeout := grpc.ConnectionTimeout(handshakeTime)
	if l := s.listeners.plain; l != nil {
		plain := grpc.NewServer(append(xds.ServerOptions(), timeout)...)
		s.proxies.Register(plain)
		s.run("plaintext xds listener", func(ctx context.Context) error { return serveGRPC(ctx, plain, l) })
	}
	if id == nil {
		return
	}
	s.connections = newLimitedTLS(credentials.NewTLS(ca.ServerTLS(id.manager.ServerCertificate)), workloadConnections,
		id.verify, s.registry, s.log.Named("xds"))
	l := connlimit.New(s.listeners.secure, maxUnauthenticated, maxFromSource)
	s.collect(collectUnauthenticated(l))
	secure := grpc.NewServer(append(xds.ServerOptions(), grpc.Creds(s.connections), timeout)...)
	s.proxies.Register(secure)
	id.issuer.Register(secure)
	s.run("xds listener", func(ctx context.Context) error { return serveGRPC(ctx, secure, l) })
}

// serveGRPC serves srv on l until ctx ends, and closes its connections drainTime later.
func serveGRPC(ctx context.Context, srv *grpc.Server, l net.Listener) error {
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(l) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	cut := time.AfterFunc(drainTime, srv.Stop)
	defer cut.Stop()
	srv.GracefulStop()
	<-failed
	return nil
}
