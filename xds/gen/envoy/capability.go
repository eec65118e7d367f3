package envoy

import "github.com/ashore-mesh/ashore/push"

// The extensions that generation asks about. A resource may name an extension beyond those of every
// Envoy build only after asking.
const (
	// GRPCStats is the HTTP filter that counts gRPC messages.
	GRPCStats push.Capabilities = 1 << iota
	// IstioALPN is Istio's HTTP filter that chooses the ALPN of upstream connections.
	IstioALPN
	// IstioStats is Istio's filter that makes its standard metrics.
	IstioStats
	// PeerMetadata is Istio's HTTP filter that exchanges workload metadata.
	PeerMetadata
	// MetadataExchange is Istio's network filter that exchanges workload metadata.
	MetadataExchange
	// DNSCluster is the kind of cluster that resolves names; without it the older kinds do, of
	// which Envoy warns.
	DNSCluster
)

// Stock is what stock Envoy has.
const Stock = GRPCStats | DNSCluster

// capability is the bit of an extension by its name; zero when generation does not ask about it.
func capability(extension string) push.Capabilities {
	switch extension {
	case "envoy.filters.http.grpc_stats":
		return GRPCStats
	case "istio.alpn":
		return IstioALPN
	case "istio.stats":
		return IstioStats
	case "envoy.filters.http.peer_metadata":
		return PeerMetadata
	case "envoy.filters.network.metadata_exchange":
		return MetadataExchange
	case DnsClusterExtension:
		return DNSCluster
	default:
		return 0
	}
}

// CapabilitiesOf reduces the names of a client's extensions (Node.extensions) to what generation
// asks about. A client that names none at all does not tell, and is taken for a stock Envoy.
func CapabilitiesOf(extensions []string) push.Capabilities {
	if len(extensions) == 0 {
		return Stock
	}
	var c push.Capabilities
	for _, e := range extensions {
		c |= capability(e)
	}
	return c
}
