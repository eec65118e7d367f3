package listener

import (
	"github.com/ashore-mesh/ashore/xds/gen/access"
	"github.com/ashore-mesh/ashore/xds/gen/envoy"
	"github.com/ashore-mesh/ashore/xds/gen/secret"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// listenerRefs are the route configurations, clusters, secrets and filters that a listener names as
// it was built, each once; of filters those alone that may need a cluster.
type listenerRefs struct {
	list []resource.Ref
	seen map[resource.Ref]bool
}

// closedRefs are those of a listener that closes all connections.
func closedRefs() *listenerRefs {
	return &listenerRefs{list: []resource.Ref{{TypeURL: resource.ClusterType, Name: envoy.BlackHole}}}
}

func (r *listenerRefs) add(typeURL, name string) {
	if ref := (resource.Ref{TypeURL: typeURL, Name: name}); !r.seen[ref] {
		r.seen[ref] = true
		r.list = append(r.list, ref)
	}
}

// addChain adds those of a filter chain.
func (r *listenerRefs) addChain(c chainSpec, side listenerSide) {
	if name := c.asking(); name != "" && side != sideOutbound {
		r.add(resource.ExtensionConfigType, name)
	}
	switch {
	case c.http.route != "":
		r.add(resource.RouteType, c.http.route)
	case c.isHTTP():
		r.add(resource.ClusterType, c.http.inbound.cluster)
	default:
		c.tcp.clusters(func(name string) { r.add(resource.ClusterType, name) })
	}
	if c.tls != nil {
		for _, cert := range secret.CertificatesOf(c.tls) {
			r.add(resource.SecretType, cert.Name())
		}
		if roots, asks := secret.ClientRoots(c.tls); asks {
			r.add(resource.SecretType, roots.Name())
		}
	}
}

// asking is the name of the filter that asks others, in a chain from others; empty: it has none.
func (c chainSpec) asking() string {
	switch {
	case c.isHTTP():
		return access.FilterAsk
	case c.tcp.cluster == envoy.BlackHole:
		return ""
	}
	return access.FilterAsk + access.OfConnections
}
