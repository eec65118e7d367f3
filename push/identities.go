package push

import (
	"cmp"
	"slices"

	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/internal/pmap"
	"github.com/ashore-mesh/ashore/internal/spiffe"
	"github.com/ashore-mesh/ashore/registry"
)

// Identity is the identity of a workload within its trust domain.
type Identity struct{ Namespace, ServiceAccount string }

// Identities are the identities that the endpoints of a service may have. Zero if it has no
// endpoints. Comparable.
type Identities struct {
	// Names lists the service accounts of the endpoints, sorted, each once.
	Names *intern.List[Identity]
	// AnyName means that there are endpoints and none of them has a service account.
	AnyName bool
	// MutualTLS means that some endpoint accepts the mesh's mutual TLS.
	MutualTLS bool
	// Unintercepted means that connections to some endpoint bypass its proxy.
	Unintercepted bool
}

// identities indexes the Identities of each service. The health of endpoints does not change it.
type identities struct {
	byService pmap.Map[registry.Key, Identities]
}

// with returns a copy of the index with ch applied.
func (x identities) with(t *tables, ch pmap.Change[registry.Key, *registry.EndpointList]) identities {
	if current := identitiesOf(t, ch.New); current != x.byService.At(ch.Key) {
		x.byService = set(x.byService, ch.Key, current)
	}
	return x
}

// identitiesOf returns the identities of endpoints. Source: Istio, which ignores endpoints without
// a service account.
func identitiesOf(t *tables, l *registry.EndpointList) Identities {
	var (
		named []Identity
		out   Identities
	)
	for i := range l.All() {
		ep := &l.Items[i]
		out.MutualTLS = out.MutualTLS || ep.TLSMode == registry.TLSModeIstio
		out.Unintercepted = out.Unintercepted || !ep.Intercepted()
		if ep.ServiceAccount != "" {
			named = addIdentity(named, Identity{ep.Namespace, ep.ServiceAccount})
		}
	}
	out.Names = t.identities.Of(named)
	out.AnyName = l.Len() > 0 && len(named) == 0
	return out
}

// IdentityOf returns the SPIFFE ID of an endpoint's service account, or the zero ID if it has none.
func (c *Context) IdentityOf(ep *registry.Endpoint) spiffe.ID {
	id, err := spiffe.New(c.in.Mesh.TrustDomain(), ep.Namespace, ep.ServiceAccount)
	if err != nil {
		return spiffe.ID{} // not a valid identity
	}
	return id
}

// addIdentity adds id to a sorted list, once.
func addIdentity(list []Identity, id Identity) []Identity {
	i, ok := slices.BinarySearchFunc(list, id, func(a, b Identity) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.ServiceAccount, b.ServiceAccount))
	})
	if ok {
		return list
	}
	return slices.Insert(list, i, id)
}
