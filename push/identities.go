package push

import (
	"cmp"
	"slices"

	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/internal/pmap"
	"github.com/ashore-mesh/ashore/internal/spiffe"
	"github.com/ashore-mesh/ashore/registry"
)

// Identity is who a workload is, within its trust domain.
type Identity struct{ Namespace, ServiceAccount string }

// Identities are who the endpoints of a service may be. Comparable; the zero value: it has no endpoints.
type Identities struct {
	// Names are the service accounts that endpoints name, sorted, each once.
	Names *intern.List[Identity]
	// AnyName says that there are endpoints and none of them names a service account.
	AnyName bool
	// MutualTLS says that some endpoint takes the mesh's mutual TLS.
	MutualTLS bool
	// Unintercepted says that connections to some endpoint reach it past its proxy.
	Unintercepted bool
}

// tlsModeIstio is the Endpoint.TLSMode of what takes the mesh's mutual TLS.
const tlsModeIstio = "istio"

// identities is the index of who the endpoints of each service may be. It changes only with that, not with the health
// of endpoints, nor with their number.
type identities struct {
	byService pmap.Map[registry.Key, Identities]
}

// with brings the changed endpoints of one service into the index.
func (x identities) with(t *tables, ch pmap.Change[registry.Key, *registry.EndpointList]) identities {
	now := identitiesOf(t, ch.New)
	if now == x.byService.At(ch.Key) {
		return x
	}
	if now == (Identities{}) {
		x.byService = x.byService.Without(ch.Key)
		return x
	}
	x.byService = x.byService.With(ch.Key, now)
	return x
}

// identitiesOf finds who endpoints may be. Source: Istio, which passes over endpoints without a service account.
func identitiesOf(t *tables, l *registry.EndpointList) Identities {
	var (
		named []Identity
		out   Identities
	)
	for i := range l.All() {
		ep := &l.Items[i]
		out.MutualTLS = out.MutualTLS || ep.TLSMode == tlsModeIstio
		out.Unintercepted = out.Unintercepted || !ep.Intercepted()
		if ep.ServiceAccount != "" {
			named = addIdentity(named, Identity{ep.Namespace, ep.ServiceAccount})
		}
	}
	out.Names = t.identities.Of(named)
	out.AnyName = l.Len() > 0 && len(named) == 0
	return out
}

// IdentityOf is the identity of an endpoint's service account; the zero ID: it names none.
func (c *Context) IdentityOf(ep *registry.Endpoint) spiffe.ID {
	id, err := spiffe.New(c.trustDomain(), ep.Namespace, ep.ServiceAccount)
	if err != nil {
		return spiffe.ID{} // nobody can be that
	}
	return id
}

// trustDomain is the mesh's own.
func (c *Context) trustDomain() string {
	return cmp.Or(c.in.Mesh.Config.GetTrustDomain(), "cluster.local")
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
