package listener

import (
	"github.com/ashore-mesh/ashore/xds/gen/access"
	"github.com/ashore-mesh/ashore/xds/gen/envoy"
	"github.com/ashore-mesh/ashore/xds/gen/secret"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// contents is what the filter chains of a listener name.
type contents struct {
	// refs are route configurations, clusters, secrets and filters, each once; of filters those alone
	// that may need a cluster.
	refs []resource.Ref
	seen map[resource.Ref]bool
}

func (r *contents) add(typeURL, name string) {
	if ref := (resource.Ref{TypeURL: typeURL, Name: name}); !r.seen[ref] {
		r.seen[ref] = true
		r.refs = append(r.refs, ref)
	}
}

// addChain adds what a filter chain names.
func (r *contents) addChain(c chainSpec, side listenerSide) {
	asking := access.FilterAsk
	switch {
	case c.http.route != "":
		r.add(resource.RouteType, c.http.route)
	case c.isHTTP():
		r.add(resource.ClusterType, c.http.inbound.cluster)
	default:
		asking += access.OfConnections
		c.tcp.clusters(func(name string) { r.add(resource.ClusterType, name) })
	}
	if side != sideOutbound && c.tcp.cluster != envoy.BlackHole {
		r.add(resource.ExtensionConfigType, asking)
	}
	for _, cert := range secret.CertificatesOf(c.tls) {
		r.add(resource.SecretType, cert.Name)
	}
	if authorities := secret.ClientAuthorities(c.tls); authorities != nil {
		r.add(resource.SecretType, authorities.Name)
	}
}
