package gen

import (
	"slices"

	xdscorev3 "github.com/cncf/xds/go/xds/core/v3"
	xdsmatcherv3 "github.com/cncf/xds/go/xds/type/matcher/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	setstatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/common/set_filter_state/v3"
	connectionstatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/set_filter_state/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	socketinputv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/matching/common_inputs/transport_socket/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	security "istio.io/api/security/v1beta1"

	"github.com/ashore-mesh/ashore/push"
)

// The filters of connections judge with the caller's first byte, and a workload may speak before
// it. So a connection is judged once before, when its caller has proved who it is: filters write
// into its state that it is refused, and the cluster of the workload has a socket for such
// connections on which nothing can be said. The connection to the workload is opened after the
// handshake alone; a refused one is closed before a byte passes, in either direction.
//
// This refuses some of what the filters of connections refuse, and nothing else: what cannot be
// told from CEL is left to them. They stay, for they are the law.
//
// Envoy 1.40, tried: the cluster of tcp_proxy is chosen before the handshake, the socket of the
// cluster after it.
const (
	// ofHandshakes ends the names of filters that judge at the handshake.
	ofHandshakes = ".handshake"
	// refusedState is where they write, and refusedValue what.
	refusedState, refusedValue = "ashore.authz.refused", "refused"
)

// handshakeFilters are the filters of connections that also judge at the handshake.
func handshakeFilters() []string {
	return []string{filterRevoked, filterCustom, filterDeny, filterAllow}
}

// judgeHandshakes are these, as listeners name them.
func judgeHandshakes() []*listenerv3.Filter {
	var out []*listenerv3.Filter
	for _, name := range handshakeFilters() {
		out = append(out, &listenerv3.Filter{
			Name:       name + ofHandshakes,
			ConfigType: &listenerv3.Filter_ConfigDiscovery{ConfigDiscovery: discovered([]string{typeURLOf(&connectionstatev3.Config{})})},
		})
	}
	return out
}

// awaitHandshake has a chain open the connection to the workload after the handshake. What the
// caller sends before it is open is read once, for the filters of connections, and kept. Without
// TLS nothing is waited for.
func awaitHandshake(p *tcpv3.TcpProxy) {
	p.UpstreamConnectMode = tcpv3.UpstreamConnectMode_ON_DOWNSTREAM_TLS_HANDSHAKE
	p.MaxEarlyDataBytes = wrapperspb.UInt32(0)
}

// handshake is one of the filters that judge at the handshake.
func (in extensionsIn) handshake(s rbacScope, name string) proto.Message {
	var refused []celExpr
	switch name {
	case filterRevoked:
		refused = in.revokedCallers()
	case filterCustom:
		if !in.asks(s.tcp) {
			refused = surelyDenied(s.unasked(in))
		}
	case filterDeny:
		rules, _ := s.rules(in.policies, security.AuthorizationPolicy_DENY, "")
		refused = surelyDenied(rules)
	case filterAllow:
		rules, _ := s.rules(in.policies, security.AuthorizationPolicy_ALLOW, "")
		refused = surelyNotAllowed(rules)
	}
	out := &connectionstatev3.Config{}
	for _, e := range refused {
		if text, ok := e.render(); ok {
			out.OnDownstreamTlsHandshake = append(out.OnDownstreamTlsHandshake, refusedWhen(text))
		}
	}
	return out
}

// refusedWhen marks a connection as refused when a condition in CEL holds. One that cannot be told,
// as by a caller without a certificate, marks nothing.
func refusedWhen(cel string) *setstatev3.FilterStateValue {
	return &setstatev3.FilterStateValue{
		Key: &setstatev3.FilterStateValue_ObjectKey{ObjectKey: refusedState},
		// so that no two connections that differ in it share one to the workload
		FactoryKey:         "envoy.hashable_string",
		SharedWithUpstream: setstatev3.FilterStateValue_ONCE,
		SkipIfEmpty:        true,
		Value: &setstatev3.FilterStateValue_FormatString{FormatString: &corev3.SubstitutionFormatString{
			Format: &corev3.SubstitutionFormatString_TextFormatSource{TextFormatSource: &corev3.DataSource{
				Specifier: &corev3.DataSource_InlineString{InlineString: "%CEL(" + cel + " ? '" + refusedValue + "' : '')%"},
			}},
			OmitEmptyValues: true,
		}},
	}
}

// revokedCallers are conditions that the caller is revoked, by its identity or its certificate; a
// few at a time, for Envoy bounds the length of a condition.
func (in extensionsIn) revokedCallers() []celExpr {
	const few = 500
	var out []celExpr
	for list := range slices.Chunk(in.identities.Items(), few) {
		out = append(out, callerWith(celExpr{op: celIn, attribute: callerIdentity, values: list}))
	}
	for list := range slices.Chunk(in.certificates.Items(), few) {
		out = append(out, callerWith(celExpr{op: celIn, attribute: callerCertificate, values: list}))
	}
	return out
}

// refuseMarked has a cluster of the workload refuse the connections that are marked: the socket for
// them speaks a TLS of no version, and so fails before it says or hears anything.
func refuseMarked(c *clusterv3.Cluster, caps push.Capabilities) {
	if !caps.Has(capHandshake) {
		return
	}
	const socket = "refused"
	never := &tlsv3.UpstreamTlsContext{CommonTlsContext: &tlsv3.CommonTlsContext{TlsParams: &tlsv3.TlsParameters{
		TlsMinimumProtocolVersion: tlsv3.TlsParameters_TLSv1_3, TlsMaximumProtocolVersion: tlsv3.TlsParameters_TLSv1_2,
	}}}
	c.TransportSocketMatches = []*clusterv3.Cluster_TransportSocketMatch{{
		Name: socket,
		// no endpoint says so
		Match: &structpb.Struct{Fields: map[string]*structpb.Value{refusedState: structpb.NewBoolValue(true)}},
		TransportSocket: &corev3.TransportSocket{Name: tlsSocketName,
			ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: packed(never)}},
	}}
	c.TransportSocketMatcher = &xdsmatcherv3.Matcher{MatcherType: &xdsmatcherv3.Matcher_MatcherTree_{MatcherTree: &xdsmatcherv3.Matcher_MatcherTree{
		Input: &xdscorev3.TypedExtensionConfig{Name: socketStateInput,
			TypedConfig: packed(&socketinputv3.FilterStateInput{Key: refusedState})},
		TreeType: &xdsmatcherv3.Matcher_MatcherTree_ExactMatchMap{ExactMatchMap: &xdsmatcherv3.Matcher_MatcherTree_MatchMap{
			Map: map[string]*xdsmatcherv3.Matcher_OnMatch{refusedValue: {OnMatch: &xdsmatcherv3.Matcher_OnMatch_Action{
				Action: &xdscorev3.TypedExtensionConfig{Name: "envoy.matching.action.transport_socket.name",
					TypedConfig: packed(&socketinputv3.TransportSocketNameAction{Name: socket})},
			}}},
		}},
	}}}
}

// socketStateInput is what the choice of a socket reads the state of connections with.
const socketStateInput = "envoy.matching.inputs.transport_socket_filter_state"
