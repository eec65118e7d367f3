package envoy

import (
	"slices"

	"github.com/ashore-mesh/ashore/push"
)

// The optional extensions of clients. A resource may name an extension beyond those of every Envoy
// build only where the client has it.
const (
	// GRPCStats is the HTTP filter that counts gRPC messages.
	GRPCStats push.Capabilities = 1 << iota
	// Metrics is the access logger that counts, in the form that Envoy has since 1.39.
	Metrics
)

// since139 is an extension of every Envoy since 1.39. Clients do not name the fields that they know.
const since139 = "envoy.filters.http.filter_chain"

// CapabilitiesOf reduces the names of a client's extensions (Node.extensions) to what generation
// asks about. A client that names none at all does not tell, and is taken for a stock Envoy.
func CapabilitiesOf(extensions []string) push.Capabilities {
	if len(extensions) == 0 {
		return GRPCStats | Metrics
	}
	var out push.Capabilities
	if slices.Contains(extensions, "envoy.filters.http.grpc_stats") {
		out |= GRPCStats
	}
	if slices.Contains(extensions, "envoy.access_loggers.stats") && slices.Contains(extensions, since139) {
		out |= Metrics
	}
	return out
}
