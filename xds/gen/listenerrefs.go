package gen

import "github.com/ashore-mesh/ashore/xds/resource"

// listenerRefs are the route configurations, clusters and secrets that a listener names as it was built, each once.
type listenerRefs struct {
	list []resource.Ref
	seen map[resource.Ref]bool
}

// closedRefs are those of a listener that closes all connections.
func closedRefs() *listenerRefs {
	return &listenerRefs{list: []resource.Ref{{TypeURL: ClusterType, Name: blackHole}}}
}

func (r *listenerRefs) add(typeURL, name string) {
	if ref := (resource.Ref{TypeURL: typeURL, Name: name}); !r.seen[ref] {
		r.seen[ref] = true
		r.list = append(r.list, ref)
	}
}

// addChain adds those of a filter chain.
func (r *listenerRefs) addChain(c chainSpec) {
	switch {
	case c.http.route != "":
		r.add(RouteType, c.http.route)
	case c.isHTTP():
		r.add(ClusterType, c.http.inbound.cluster)
	default:
		c.tcp.clusters(func(name string) { r.add(ClusterType, name) })
	}
	if c.tls != nil {
		for _, cert := range certificatesOf(c.tls) {
			r.add(SecretType, cert.secretName())
		}
		if roots, asks := clientRoots(c.tls); asks {
			r.add(SecretType, roots.secretName())
		}
	}
}
