package listener

import (
	"cmp"
	"strconv"
	"strings"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/xds/gen/destination"
	"github.com/ashore-mesh/ashore/xds/gen/envoy"
	"github.com/ashore-mesh/ashore/xds/gen/layout"
)

// tcpFilter is the filter that forwards connections.
func tcpFilter(p *tcpv3.TcpProxy) *listenerv3.Filter {
	return envoy.NetworkFilter("envoy.filters.network.tcp_proxy", p)
}

// tcpProxy is the configuration of tcpFilter.
func tcpProxy(s tcpSpec, log []*accesslogv3.AccessLog) *tcpv3.TcpProxy {
	p := &tcpv3.TcpProxy{
		StatPrefix:                      s.statPrefix,
		IdleTimeout:                     s.idle,
		MaxDownstreamConnectionDuration: s.lifetime,
		AccessLog:                       log,
		AccessLogOptions:                &tcpv3.TcpProxy_TcpAccessLogOptions{FlushAccessLogOnConnected: true},
	}
	if s.weighted == nil {
		p.ClusterSpecifier = &tcpv3.TcpProxy_Cluster{Cluster: s.cluster}
	} else {
		w := &tcpv3.TcpProxy_WeightedCluster{}
		for _, c := range s.weighted.Items() {
			w.Clusters = append(w.Clusters, &tcpv3.TcpProxy_WeightedCluster_ClusterWeight{Name: c.name,
				Weight: c.weight})
		}
		p.ClusterSpecifier = &tcpv3.TcpProxy_WeightedClusters{WeightedClusters: w}
	}
	if t := s.tunnel; t != nil {
		host := t.TargetHost
		if strings.Contains(host, ":") { // IPv6
			host = "[" + host + "]"
		}
		p.TunnelingConfig = &tcpv3.TcpProxy_TunnelingConfig{UsePost: t.Protocol == "POST",
			Hostname: host + ":" + strconv.FormatUint(uint64(t.TargetPort), 10)}
	}
	if s.hashSource {
		p.HashPolicy = []*typev3.HashPolicy{{PolicySpecifier: &typev3.HashPolicy_SourceIp_{SourceIp: &typev3.HashPolicy_SourceIp{}}}}
	}
	return p
}

// maxEarlyData is how much of a connection is received before the upstream is connected, in bytes.
const maxEarlyData = 64 << 10

// afterHandshake connects the upstream after the TLS handshake: before it, nobody knows who connects,
// and the connection would count without a peer.
func afterHandshake(p *tcpv3.TcpProxy) {
	p.UpstreamConnectMode = tcpv3.UpstreamConnectMode_ON_DOWNSTREAM_TLS_HANDSHAKE
	p.MaxEarlyDataBytes = wrapperspb.UInt32(maxEarlyData)
}

// clusters are those that the chain forwards to.
func (s tcpSpec) clusters(yield func(string)) {
	if s.weighted == nil {
		yield(s.cluster)
		return
	}
	for _, c := range s.weighted.Items() {
		yield(c.name)
	}
}

// tcpPlanner turns destinations of connections into specs.
type tcpPlanner struct {
	destinations *push.Destinations
	weighted     *intern.Lists[weightedCluster]
}

// direct is a chain to one port of a service.
func (p tcpPlanner) direct(host string, port uint32) tcpSpec {
	name := envoy.OutboundCluster(port, "", host)
	s := tcpSpec{statPrefix: name, cluster: name, dynamicPort: p.dynamicPort(host, port)}
	d, _ := p.destinations.Get(host)
	s.apply(d.Rule, port, "")
	return s
}

// dynamicPort is tcpSpec.dynamicPort for connections to a port of a service.
func (p tcpPlanner) dynamicPort(host string, port uint32) uint32 {
	if d, ok := p.destinations.Get(host); ok && d.Service.Resolution == registry.DynamicDNS {
		return port
	}
	return 0
}

// routed is a chain of the routes of a VirtualService, nil when none of them takes connections.
// Source: Istio: of several destinations, the first one's rule holds for all, and those of weight
// zero are left out.
func (p tcpPlanner) routed(vs *push.VirtualService, routes []*networking.RouteDestination, listenPort uint32) (tcpSpec,
	bool) {
	if len(routes) == 0 {
		return tcpSpec{}, false
	}
	first := routes[0].GetDestination()
	d, _ := p.destinations.Get(first.GetHost())
	var s tcpSpec
	for _, r := range routes {
		to := r.GetDestination()
		port := layout.DestinationPort(to, p.destinations, listenPort)
		s.dynamicPort = cmp.Or(s.dynamicPort, p.dynamicPort(to.GetHost(), port))
	}
	if len(routes) == 1 {
		s.cluster = layout.DestinationCluster(first, p.destinations, listenPort)
		s.statPrefix = s.cluster
		s.apply(d.Rule, listenPort, first.GetSubset())
		return s, true
	}
	var clusters []weightedCluster
	for _, r := range routes {
		if r.Weight > 0 {
			clusters = append(clusters, weightedCluster{layout.DestinationCluster(r.GetDestination(), p.destinations,
				listenPort), uint32(r.Weight)})
		}
	}
	if len(clusters) == 0 {
		return tcpSpec{}, false
	}
	s.weighted = p.weighted.Of(clusters)
	s.statPrefix = vs.Object.Name + "." + vs.Object.Namespace
	s.apply(d.Rule, listenPort, "")
	return s, true
}

// apply takes over what a rule says about connections: the same policy that the cluster has.
func (s *tcpSpec) apply(rule *push.DestinationRule, port uint32, subset string) {
	p := destination.PolicyFor(rule, destination.SubsetOf(rule, subset), port)
	s.idle = p.Pool.GetTcp().GetIdleTimeout()
	s.lifetime = p.Pool.GetTcp().GetMaxConnectionDuration()
	s.tunnel = destination.TunnelFor(rule, subset)
	s.hashSource = p.Balance.GetConsistentHash().GetUseSourceIp()
}
