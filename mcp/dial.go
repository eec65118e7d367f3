package mcp

import (
	"context"
	"net"
	"time"

	"google.golang.org/grpc/keepalive"
)

const (
	// pingGap is the silence after which the server is pinged. Most servers end a connection that
	// pings more often than every five minutes. Source: keepalive.EnforcementPolicy.MinTime of
	// grpc-go; grpc-java and gRPC's core have the same default.
	pingGap = 5*time.Minute + 30*time.Second
	// deadAfter is how long a ping may take, and how long data may stay unacknowledged
	// (TCP_USER_TIMEOUT).
	deadAfter = 40 * time.Second
	// probeAfter is the silence after which TCP keepalive probes begin, and probeEvery their
	// interval.
	probeAfter, probeEvery = 20 * time.Second, 5 * time.Second
	probes                 = int((deadAfter - probeAfter) / probeEvery)
)

// dial connects to a server.
func dial(ctx context.Context, address string) (net.Conn, error) {
	d := &net.Dialer{KeepAliveConfig: net.KeepAliveConfig{
		Enable: true, Idle: probeAfter, Interval: probeEvery, Count: probes,
	}}
	return d.DialContext(ctx, "tcp", address)
}

func keepaliveParameters() keepalive.ClientParameters {
	return keepalive.ClientParameters{Time: pingGap, Timeout: deadAfter}
}
