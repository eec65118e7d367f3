package mcp

import (
	"context"
	"net"
	"strings"
	"time"

	"google.golang.org/grpc/keepalive"
)

const (
	// pingGap is after how much silence a server is asked whether it lives. Servers end a connection that asks oftener than they
	// allow, most of them each five minutes. Source: keepalive.EnforcementPolicy.MinTime of grpc-go; grpc-java and gRPC's core
	// have the same default.
	pingGap = 5*time.Minute + 30*time.Second
	// lastPingGap is the longest silence, for servers that want to be asked more seldom still.
	lastPingGap = 4 * pingGap
	// deadAfter is how long an answer to that may take, and how long whatever was sent may stay without the word of the other
	// machine that it has arrived: TCP_USER_TIMEOUT. A machine that is gone, or cut off, is found by that.
	deadAfter = 40 * time.Second
	// probeAfter is after how much silence the machine is asked by TCP, and probeEvery how often then. No server is bothered by
	// that; the connection ends with deadAfter.
	probeAfter, probeEvery = 20 * time.Second, 5 * time.Second
	probes                 = int((deadAfter - probeAfter) / probeEvery)
)

// tooManyPings is what a server says to who asks too often; gRPC has no error for it. Source: gRPC, doc/keepalive.md.
const tooManyPings = "too_many_pings"

// dial connects to a server.
func dial(ctx context.Context, address string) (net.Conn, error) {
	d := &net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: probeAfter, Interval: probeEvery, Count: probes}}
	return d.DialContext(ctx, "tcp", address)
}

// pings is how a server is asked whether it lives. The zero value asks as most servers allow. Not safe for concurrent use.
type pings struct{ gap time.Duration }

// parameters are gRPC's.
func (p *pings) parameters() keepalive.ClientParameters {
	return keepalive.ClientParameters{Time: max(p.gap, pingGap), Timeout: deadAfter}
}

// calm has a server be asked half as often from now on when that is why it ended a connection; false: it is not, or it is asked
// as seldom as can be already.
func (p *pings) calm(why error) bool {
	if why == nil || !strings.Contains(why.Error(), tooManyPings) || p.gap >= lastPingGap {
		return false
	}
	p.gap = min(2*max(p.gap, pingGap), lastPingGap)
	return true
}
