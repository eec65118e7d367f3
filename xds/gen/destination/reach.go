package destination

import (
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
)

// Reach decides how proxies get to a service under a policy.
type Reach struct {
	Service *registry.Service
	Policy  Policy
	// Router says that the proxy is one: nobody connected to it at an address of the service.
	Router bool
}

// Discovery is how Envoy finds the endpoints of a cluster.
type Discovery uint8

const (
	// ByEDS takes them from a load assignment of its own.
	ByEDS Discovery = iota
	// ByNames resolves the names that the cluster carries, and balances over all answers.
	ByNames
	// ByName resolves the one name that the cluster carries, and uses one answer at a time.
	ByName
	// ByOriginal goes where the client had connected to.
	ByOriginal
	// ByHost resolves the host that a request names, or a connection by its SNI.
	ByHost
	// Nowhere is a cluster without endpoints.
	Nowhere
)

// Discovery chooses.
//
// Source: Istio. Static services come by EDS. Names are resolved by the proxy. Passthrough goes
// where the client had connected to, which a router cannot know, so that it takes the endpoints.
func (r Reach) Discovery() Discovery {
	switch {
	case r.Service.Resolution == registry.DynamicDNS:
		return ByHost
	case r.Policy.passthrough() && !r.Router:
		return ByOriginal
	case r.Service.Resolution == registry.DNS:
		return ByNames
	case r.Service.Resolution == registry.DNSRoundRobin:
		return ByName
	case r.Service.Resolution == registry.Passthrough && !r.Router:
		return ByOriginal
	default:
		return ByEDS
	}
}

// Mutual says whether a cluster speaks the mesh's mutual TLS.
type Mutual uint8

const (
	// mutualNone does not; a rule may ask for TLS of another kind.
	mutualNone Mutual = iota
	// MutualAuto does with those endpoints that take it.
	MutualAuto
	// MutualAlways does with all, because a rule says so.
	MutualAlways
	// MutualClosed would have to, and the proxy has no certificate: nothing is sent.
	MutualClosed
)

// MutualTLS decides for a cluster of a client that has an identity or not.
//
// Source: istio.io, "auto mutual TLS": where no rule sets tls, endpoints that have a sidecar are
// spoken to by mutual TLS. Destinations outside of the mesh, and those to whose addresses the
// client connects itself, are not.
func (r Reach) MutualTLS(m *push.Mesh, identity bool, ids push.Identities) Mutual {
	switch {
	case r.Policy.Tls.GetMode() == networking.ClientTLSSettings_ISTIO_MUTUAL:
		if !identity {
			return MutualClosed
		}
		return MutualAlways
	case r.Policy.Tls != nil, !identity, !ids.MutualTLS, !m.Config.GetEnableAutoMtls().GetValue(),
		r.Service.External, r.Discovery() == ByOriginal:
		return mutualNone
	default:
		return MutualAuto
	}
}
