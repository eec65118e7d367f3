package gen

import (
	"slices"
	"strings"

	mesh "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/push"
)

// serverHosts are the hosts that a server takes from VirtualServices of a namespace, in lower case.
// Source: istio.io, Server.hosts: "ns/host", "." for the Gateway's own namespace, "*" for any.
func serverHosts(s gatewayServer, namespace string) []string {
	var out []string
	for _, h := range s.server.Hosts {
		ns, host, ok := strings.Cut(h, "/")
		switch {
		case !ok:
			out = append(out, strings.ToLower(h))
		case ns == "*" || ns == namespace || ns == "." && s.gateway.Namespace == namespace:
			out = append(out, strings.ToLower(host))
		}
	}
	return out
}

// overlapAny says whether a name exists that both lists stand for; hosts are in lower case.
func overlapAny(hosts, names []string) bool {
	return slices.ContainsFunc(names, func(n string) bool {
		n = strings.ToLower(n)
		return slices.ContainsFunc(hosts, func(h string) bool { return hostsOverlap(h, n) })
	})
}

// narrow keeps of names what hosts, which are in lower case, allow: a name that a host covers, and
// a host that a name covers.
func narrow(names, hosts []string) []string {
	var out []string
	for _, n := range names {
		n = strings.ToLower(n)
		for _, h := range hosts {
			switch {
			case hostCovers(h, n):
				out = append(out, n)
			case hostCovers(n, h):
				out = append(out, h)
			}
		}
	}
	return out
}

// catchAllCluster is where connections to unknown destinations go: the Sidecar's policy decides,
// else the mesh's. Source: Istio's outboundTrafficPolicy; ALLOW_ANY is the mesh's default.
func catchAllCluster(sc *push.Scope) string {
	if sc.Sidecar != nil && sc.Sidecar.Spec.OutboundTrafficPolicy != nil {
		p := sc.Sidecar.Spec.OutboundTrafficPolicy
		if p.Mode != networking.OutboundTrafficPolicy_ALLOW_ANY {
			return blackHole
		}
		if e := p.EgressProxy; e != nil {
			return destinationCluster(e, sc.Destinations, e.GetPort().GetNumber())
		}
		return passthrough
	}
	if p := sc.Mesh.Config.GetOutboundTrafficPolicy(); p != nil &&
		p.Mode == mesh.MeshConfig_OutboundTrafficPolicy_REGISTRY_ONLY {
		return blackHole
	}
	return passthrough
}

// hostsOverlap says whether a name exists that both stand for; "*" and "*." before a name are
// wildcards.
func hostsOverlap(a, b string) bool { return hostCovers(a, b) || hostCovers(b, a) }

// hostCovers says whether every name that host stands for is one of pattern's.
func hostCovers(pattern, host string) bool {
	if suffix, wild := strings.CutPrefix(pattern, "*"); wild {
		return strings.HasSuffix(strings.TrimPrefix(host, "*"), suffix)
	}
	return pattern == host
}

// destinationCluster is the cluster of a route's destination: the port that it names, else the only
// one of the service, else the listener's. Source: Istio.
func destinationCluster(d *networking.Destination, known *push.Destinations, listenPort uint32) string {
	port := listenPort
	if n := d.GetPort().GetNumber(); n != 0 {
		port = n
	} else if to, ok := known.Get(d.GetHost()); ok && len(to.Service.Ports) == 1 {
		port = to.Service.Ports[0].Number
	}
	return outboundCluster(port, d.GetSubset(), d.GetHost())
}
