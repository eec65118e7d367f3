package listener

import (
	"net/netip"

	"google.golang.org/protobuf/types/known/durationpb"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/xds/gen/envoy"
)

// listenerSpec is all that one listener is made of.
type listenerSpec struct {
	base *listenerBase
	name string
	at   envoy.Address
	// also is a second address with the same port (the other IP version); the zero address: none.
	also netip.Addr
	side listenerSide
	// bound says that the proxy opens the port; else it receives what another listener hands on.
	bound bool
	// capture says that redirected connections arrive here, and how they go on.
	capture captureMode
	// chains are in order of precedence, their matches are disjoint.
	chains *intern.List[chainSpec]
	// undetected are ports for which HTTP is not detected, although chains are chosen by it.
	undetected *intern.List[uint32]
	// fallback says that connections which no chain matches go where the proxy's policy for unknown
	// destinations says; else they are closed.
	fallback bool
}

// listenerSide says whose traffic a listener takes.
type listenerSide uint8

const (
	// sideOutbound is what a workload sends.
	sideOutbound listenerSide = iota
	// sideInbound is what a workload receives.
	sideInbound
	// sideGateway is what a router receives.
	sideGateway
)

// captureMode says what a listener does with redirected connections.
type captureMode uint8

const (
	// captureNone takes connections as they are.
	captureNone captureMode = iota
	// captureHandOff finds the original destination and hands the connection to the listener of
	// that address.
	captureHandOff
	// captureHere finds the original destination and keeps the connection.
	captureHere
)

// chainSpec is one filter chain: what it takes and what it does.
type chainSpec struct {
	name  string
	match chainMatch
	// tls, when not nil, ends TLS.
	tls *networking.ServerTLSSettings
	// mutual ends the mesh's mutual TLS.
	mutual bool
	// closed closes all connections: mutual TLS would have to be ended, and the proxy has no
	// certificate.
	closed bool
	// forwarded is the mesh's mutual TLS between others.
	forwarded bool
	// http is used when its statPrefix is not empty, else tcp.
	http httpSpec
	tcp  tcpSpec
}

// chainMatch says which connections a filter chain takes. The zero value takes all.
type chainMatch struct {
	// port is the original destination's; zero: any.
	port uint32
	// subnet, when valid, are the addresses that clients connected to; else any.
	subnet netip.Prefix
	// sni are names, "*." before them for all below; nil: any, or none.
	sni *intern.List[string]
	// plainHTTP takes only what was recognised as plaintext HTTP.
	plainHTTP bool
	// transport is plainTransport or tlsTransport; empty: both.
	transport string
	// alpn are the protocols of which clients must offer one in TLS, "h2,http/1.1"; empty: any.
	alpn string
}

// httpSpec is a chain that routes requests.
type httpSpec struct {
	// statPrefix begins the names of its metrics.
	statPrefix string
	// route is the route configuration; empty: all goes to the workload, as inbound says.
	route string
	// inbound is where all requests go.
	inbound inboundRoute
	// absoluteURLs takes requests as HTTP proxies get them.
	absoluteURLs bool
	// grpcWeb translates it to gRPC.
	grpcWeb bool
}

// tcpSpec is a chain that forwards connections.
type tcpSpec struct {
	statPrefix string
	// cluster is where they go; empty: weighted says.
	cluster  string
	weighted *intern.List[weightedCluster]
	// idle is how long a connection may be silent; nil: Envoy's default, 1h.
	idle *durationpb.Duration
	// lifetime is how long a connection may live; nil: for ever.
	lifetime *durationpb.Duration
	// hashSource balances by the client's address.
	hashSource bool
	// dynamicPort, when not zero, is the port of the hosts that connections name by SNI and that the
	// proxy resolves.
	dynamicPort uint32
	// tunnel, when not nil, asks the cluster to connect to another place (HTTP CONNECT or POST).
	tunnel *networking.TrafficPolicy_TunnelSettings
}

// weightedCluster is one of several clusters and its share of connections.
type weightedCluster struct {
	name   string
	weight uint32
}

// isHTTP says that the chain routes requests.
func (c chainSpec) isHTTP() bool { return c.http.statPrefix != "" }

// all says that the chain takes every connection.
func (m chainMatch) all() bool { return m == chainMatch{} }
