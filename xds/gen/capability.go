package gen

import "github.com/ashore-mesh/ashore/push"

// The extensions that generation asks about. A resource may name an extension beyond those of every
// Envoy build only after asking.
const (
	// capGRPCStats is the HTTP filter that counts gRPC messages.
	capGRPCStats push.Capabilities = 1 << iota
	// capIstioALPN is Istio's HTTP filter that chooses the ALPN of upstream connections.
	capIstioALPN
	// capIstioStats is Istio's filter that makes its standard metrics.
	capIstioStats
	// capPeerMetadata is Istio's HTTP filter that exchanges workload metadata.
	capPeerMetadata
	// capMetadataExchange is Istio's network filter that exchanges workload metadata.
	capMetadataExchange
	// capDNSCluster is the kind of cluster that resolves names; without it the older kinds do, of
	// which Envoy warns.
	capDNSCluster
)

// capStock is what stock Envoy has.
const capStock = capGRPCStats | capDNSCluster

// capability is the bit of an extension by its name; zero when generation does not ask about it.
func capability(extension string) push.Capabilities {
	switch extension {
	case "envoy.filters.http.grpc_stats":
		return capGRPCStats
	case "istio.alpn":
		return capIstioALPN
	case "istio.stats":
		return capIstioStats
	case "envoy.filters.http.peer_metadata":
		return capPeerMetadata
	case "envoy.filters.network.metadata_exchange":
		return capMetadataExchange
	case dnsClusterExtension:
		return capDNSCluster
	default:
		return 0
	}
}

// capabilitiesOf reduces the names of a client's extensions (Node.extensions) to what generation
// asks about. A client that names none at all does not tell, and is taken for a stock Envoy.
func capabilitiesOf(extensions []string) push.Capabilities {
	if len(extensions) == 0 {
		return capStock
	}
	var c push.Capabilities
	for _, e := range extensions {
		c |= capability(e)
	}
	return c
}
