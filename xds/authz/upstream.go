package authz

import (
	"fmt"
	"net"
	"strconv"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	tcpproxyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"

	"github.com/ashore-mesh/ashore/xds/gen/envoy"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// mutualTLS means that the destination learns the caller's identity.
const mutualTLS = "mutual TLS"

// reach fills in how the proxy reaches the cluster of a hop, or why it does not.
func (rs Resources) reach(hop *Hop) {
	var c clusterv3.Cluster
	if !rs.get(resource.ClusterType, hop.Cluster, &c) {
		hop.Code, hop.Flags = 503, "NC"
		hop.Reason = "the proxy has no such cluster: the VirtualService names a host, port or subset that there is not"
		return
	}
	a := c.GetLoadAssignment()
	if c.GetType() == clusterv3.Cluster_EDS {
		a = &endpointv3.ClusterLoadAssignment{}
		rs.get(resource.EndpointType, hop.Cluster, a) // without one there are no endpoints
	}
	hop.count(&c, a)
	_, intercepted := rs.unknownDestinations()
	switch {
	case c.GetType() == clusterv3.Cluster_ORIGINAL_DST && !intercepted:
		hop.Code, hop.Flags = 503, "UH"
		hop.Reason = "nobody declared endpoints of this host, and without interception no address is known: " +
			"write a ServiceEntry"
	case hop.Cluster == envoy.BlackHole:
		hop.Code, hop.Flags = 503, "UH"
		hop.Reason = "nobody declared this host and port, and outboundTrafficPolicy is REGISTRY_ONLY: " +
			"write a ServiceEntry"
	case c.GetClusterType().GetName() == "envoy.clusters.dynamic_forward_proxy":
		hop.Endpoints, hop.Reason = 1, "the request goes to the host that it names, which the proxy resolves"
	case c.GetType() == clusterv3.Cluster_ORIGINAL_DST:
		hop.Endpoints, hop.Reason = 1, "the request goes to the address that the client connected to"
	case hop.Endpoints == 0:
		hop.Code, hop.Flags, hop.Reason = 503, "UH", "the cluster has no healthy endpoint"
	}
}

// unknownDestinations is the cluster of connections that no listener is for. It is false when nothing
// redirects connections to the proxy.
func (rs Resources) unknownDestinations() (cluster string, intercepted bool) {
	var l listenerv3.Listener
	if !rs.get(resource.ListenerType, "virtualOutbound", &l) {
		return "", false
	}
	for _, chain := range append(l.GetFilterChains(), l.GetDefaultFilterChain()) {
		for _, f := range chain.GetFilters() {
			var tcp tcpproxyv3.TcpProxy
			if chain.GetFilterChainMatch().GetDestinationPort() == nil && f.GetTypedConfig().UnmarshalTo(&tcp) == nil {
				cluster = tcp.GetCluster()
			}
		}
	}
	return cluster, true
}

// count counts endpoints and says which of them get mutual TLS.
func (hop *Hop) count(c *clusterv3.Cluster, a *endpointv3.ClusterLoadAssignment) {
	mutual := 0
	for _, locality := range a.GetEndpoints() {
		for _, ep := range locality.GetLbEndpoints() {
			hop.Endpoints++
			at := ep.GetEndpoint().GetAddress().GetSocketAddress()
			port := strconv.FormatUint(uint64(at.GetPortValue()), 10)
			hop.Addresses = append(hop.Addresses, net.JoinHostPort(at.GetAddress(), port))
			match := ep.GetMetadata().GetFilterMetadata()["envoy.transport_socket_match"]
			if match.GetFields()["tlsMode"].GetStringValue() == "istio" {
				mutual++
			}
		}
	}
	hop.TLS = "plaintext"
	var tls tlsv3.UpstreamTlsContext
	switch {
	case len(c.GetTransportSocketMatches()) > 0 && mutual == hop.Endpoints:
		hop.TLS = mutualTLS
	case len(c.GetTransportSocketMatches()) > 0 && mutual > 0:
		hop.TLS = fmt.Sprintf(mutualTLS+" for %d of %d", mutual, hop.Endpoints)
	case c.GetTransportSocket().GetTypedConfig().UnmarshalTo(&tls) == nil:
		hop.TLS = "TLS"
		own := tls.GetCommonTlsContext().GetTlsCertificateSdsSecretConfigs()
		if len(own) > 0 && own[0].GetName() == envoy.OwnSecret {
			hop.TLS = mutualTLS
		}
	}
}
