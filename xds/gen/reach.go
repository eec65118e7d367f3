package gen

import (
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
)

// reach decides how proxies get to a service under a policy.
type reach struct {
	service *registry.Service
	policy  policy
	// router says that the proxy is one: nobody connected to it at an address of the service.
	router bool
}

// discovery is how Envoy finds the endpoints of a cluster.
type discovery uint8

const (
	// byEDS takes them from a load assignment of its own.
	byEDS discovery = iota
	// byNames resolves the names that the cluster carries, and balances over all answers.
	byNames
	// byName resolves the one name that the cluster carries, and uses one answer at a time.
	byName
	// byOriginal goes where the client had connected to.
	byOriginal
	// nowhere is a cluster without endpoints.
	nowhere
)

// discovery chooses.
//
// Source: Istio. Static services come by EDS. Names are resolved by the proxy. Passthrough goes
// where the client had connected to, which a router cannot know, so that it takes the endpoints.
func (r reach) discovery() discovery {
	switch {
	case r.policy.passthrough() && !r.router:
		return byOriginal
	case r.service.Resolution == registry.DNS:
		return byNames
	case r.service.Resolution == registry.DNSRoundRobin:
		return byName
	case r.service.Resolution == registry.Passthrough && !r.router:
		return byOriginal
	default:
		return byEDS
	}
}

// mutual says whether a cluster speaks the mesh's mutual TLS.
type mutual uint8

const (
	// mutualNone does not; a rule may ask for TLS of another kind.
	mutualNone mutual = iota
	// mutualAuto does with those endpoints that take it.
	mutualAuto
	// mutualAlways does with all, because a rule says so.
	mutualAlways
	// mutualClosed would have to, and the proxy has no certificate: nothing is sent.
	mutualClosed
)

// mutualTLS decides for a cluster of a client that has an identity or not.
//
// Source: istio.io, "auto mutual TLS": where no rule sets tls, endpoints that have a sidecar are
// spoken to by mutual TLS. Destinations outside of the mesh, and those to whose addresses the
// client connects itself, are not.
func (r reach) mutualTLS(m *push.Mesh, identity bool, ids push.Identities) mutual {
	switch {
	case r.policy.tls.GetMode() == networking.ClientTLSSettings_ISTIO_MUTUAL:
		if !identity {
			return mutualClosed
		}
		return mutualAlways
	case r.policy.tls != nil, !identity, !ids.MutualTLS, !m.Config.GetEnableAutoMtls().GetValue(),
		r.service.External, r.discovery() == byOriginal:
		return mutualNone
	default:
		return mutualAuto
	}
}
