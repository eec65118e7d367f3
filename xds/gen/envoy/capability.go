package envoy

import (
	"slices"

	"github.com/ashore-mesh/ashore/push"
)

// GRPCStats says that a client has the HTTP filter that counts gRPC messages. A resource may name an
// extension beyond those of every Envoy build only where the client has it.
const GRPCStats push.Capabilities = 1

// CapabilitiesOf reduces the names of a client's extensions (Node.extensions) to what generation
// asks about. A client that names none at all does not tell, and is taken for a stock Envoy.
func CapabilitiesOf(extensions []string) push.Capabilities {
	if len(extensions) == 0 || slices.Contains(extensions, "envoy.filters.http.grpc_stats") {
		return GRPCStats
	}
	return 0
}
