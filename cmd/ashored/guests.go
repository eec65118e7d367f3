package main

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/ashore-mesh/ashore/internal/ratelimit"
	"github.com/ashore-mesh/ashore/internal/spiffe"
)

// refusalTime is how long a connection that is one too many stays open, so that whoever opened it hears why.
const refusalTime = 5 * time.Second

// guests are the connections of who has proven to be a workload: one that is broken, or in the wrong hands, is not to take
// what all others need. Connections are counted by lobby.mu.
type guests struct {
	most    bounds                 // set once
	refused *prometheus.CounterVec // set once
	log     *ratelimit.Logger      // set once

	keys       map[[sha256.Size]byte]int // guarded by lobby.mu: how many show a certificate of a public key
	households map[household]int         // guarded by lobby.mu
}

// bounds are how many connections there may be at once: of one workload, which is told by the public key of its
// certificate, and of all workloads of one identity at one address. The second one holds for who makes key after key.
type bounds struct {
	workload, address int
}

// household is an identity at an address: many workloads may share both.
type household struct {
	id   spiffe.ID
	from netip.Prefix
}

// guest is what a connection is counted by.
type guest struct {
	key [sha256.Size]byte
	household
}

// newGuests makes the book of guests. Errors: a metric that is registered already.
func newGuests(most bounds, r prometheus.Registerer, log hclog.Logger) (*guests, error) {
	g := &guests{most: most, log: ratelimit.NewLogger(log), keys: map[[sha256.Size]byte]int{}, households: map[household]int{},
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "ashore_connections_refused_total",
			Help: "Connections of workloads that were refused, for one workload, or one identity at one address, had too many."}, []string{"by"})}
	for _, by := range []string{"workload", "address"} {
		g.refused.WithLabelValues(by)
	}
	return g, r.Register(g.refused)
}

// enter counts a connection. Errors: it is one too many, and not counted. Called with lobby.mu held.
func (g *guests) enter(who guest) error {
	switch {
	case g.keys[who.key] >= g.most.workload:
		g.refused.WithLabelValues("workload").Inc()
		return fmt.Errorf("this workload has %d connections, no more are served (setting xds.workloadConnections of the control plane)", g.most.workload)
	case g.households[who.household] >= g.most.address:
		g.refused.WithLabelValues("address").Inc()
		return fmt.Errorf("workloads of %s at %s have %d connections, no more are served (setting xds.addressConnections of the control plane)", who.id, who.from, g.most.address)
	}
	g.keys[who.key]++
	g.households[who.household]++
	return nil
}

// leave is the end of a connection that entered. Called with lobby.mu held.
func (g *guests) leave(who guest) {
	if g.keys[who.key]--; g.keys[who.key] == 0 {
		delete(g.keys, who.key)
	}
	if g.households[who.household]--; g.households[who.household] == 0 {
		delete(g.households, who.household)
	}
}

// note logs a refusal, unless there were many of the like.
func (g *guests) note(who guest, why error) {
	g.log.Log(hclog.Warn, who.id.String()+" "+who.from.String(), "connection refused: there are too many", "identity", who.id, "from", who.from, "error", why)
}

// doorman is TLS that lets out of the lobby who proves to be a workload.
type doorman struct {
	credentials.TransportCredentials
	// proves says which workload's a chain is, whose key was proven to be at hand.
	proves func(chain []*x509.Certificate, now time.Time) (spiffe.ID, error)
}

// turnedAway is what is known of a connection that is one too many.
type turnedAway struct {
	credentials.AuthInfo
	why error
}

// ServerHandshake implements credentials.TransportCredentials.
func (d doorman) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	out, info, err := d.TransportCredentials.ServerHandshake(c)
	if err != nil {
		return out, info, err
	}
	if v, ok := c.(*visitor); ok {
		if err := v.greet(info, d.proves); err != nil {
			info = turnedAway{info, err}
		}
	}
	return out, info, nil
}

// Clone implements credentials.TransportCredentials.
func (d doorman) Clone() credentials.TransportCredentials {
	return doorman{d.TransportCredentials.Clone(), d.proves}
}

// refusals are how a server tells connections that are too many.
func refusals() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			if err := refusal(ctx); err != nil {
				return nil, err
			}
			return next(ctx, req)
		}),
		grpc.ChainStreamInterceptor(func(srv any, st grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			if err := refusal(st.Context()); err != nil {
				return err
			}
			return next(srv, st)
		}),
	}
}

// refusal is why a call is not served.
func refusal(ctx context.Context) error {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}
	if t, ok := p.AuthInfo.(turnedAway); ok {
		return status.Error(codes.ResourceExhausted, t.why.Error())
	}
	return nil
}
