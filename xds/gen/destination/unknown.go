package destination

import (
	mesh "istio.io/api/mesh/v1alpha1"

	"github.com/ashore-mesh/ashore/push"
)

// ResolvesUnknown says that requests for hosts that nobody declared go to the hosts that they name,
// which the proxy resolves. A Sidecar with an outboundTrafficPolicy has another mode.
// Source: istio.io, MeshConfig.outboundTrafficPolicy, which is not for gateways.
func ResolvesUnknown(sc *push.Scope) bool {
	return sc.Type != push.Router && (sc.Sidecar == nil || sc.Sidecar.Spec.OutboundTrafficPolicy == nil) &&
		sc.Mesh.Config.GetOutboundTrafficPolicy().GetMode() == mesh.MeshConfig_OutboundTrafficPolicy_ALLOW_ANY_DYNAMIC_DNS
}
