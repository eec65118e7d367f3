package layout

import (
	"slices"
	"strings"

	mesh "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/xds/gen/destination"
	"github.com/ashore-mesh/ashore/xds/gen/envoy"
)

// ServerHosts are the hosts that a server takes from VirtualServices of a namespace.
// Source: istio.io, Server.hosts: "ns/host", "." for the Gateway's own namespace, "*" for any.
func ServerHosts(s GatewayServer, namespace string) []string {
	var out []string
	for _, h := range s.Server.Hosts {
		ns, host, ok := strings.Cut(h, "/")
		switch {
		case !ok:
			out = append(out, h)
		case ns == "*" || ns == namespace || ns == "." && s.Gateway.Namespace == namespace:
			out = append(out, host)
		}
	}
	return out
}

// OverlapAny says whether a name exists that both lists stand for.
func OverlapAny(hosts, names []string) bool {
	return slices.ContainsFunc(names, func(n string) bool {
		return slices.ContainsFunc(hosts, func(h string) bool { return push.HostsOverlap(h, n) })
	})
}

// Narrow keeps of names what hosts allow: a name that a host covers, and a host that a name covers.
func Narrow(names, hosts []string) []string {
	var out []string
	for _, n := range names {
		for _, h := range hosts {
			switch {
			case HostCovers(h, n):
				out = append(out, n)
			case HostCovers(n, h):
				out = append(out, h)
			}
		}
	}
	return out
}

// CatchAllCluster is where connections to unknown destinations go: the Sidecar's policy decides,
// else the mesh's. Source: Istio's outboundTrafficPolicy; ALLOW_ANY is the mesh's default.
func CatchAllCluster(sc *push.Scope) string {
	if sc.Sidecar != nil && sc.Sidecar.Spec.OutboundTrafficPolicy != nil {
		p := sc.Sidecar.Spec.OutboundTrafficPolicy
		if p.Mode != networking.OutboundTrafficPolicy_ALLOW_ANY {
			return envoy.BlackHole
		}
		if e := p.EgressProxy; e != nil {
			return DestinationCluster(e, sc.Destinations, e.GetPort().GetNumber())
		}
		return envoy.Passthrough
	}
	if p := sc.Mesh.Config.GetOutboundTrafficPolicy(); p != nil &&
		p.Mode == mesh.MeshConfig_OutboundTrafficPolicy_REGISTRY_ONLY {
		return envoy.BlackHole
	}
	return envoy.Passthrough
}

// CatchAllRequests is the cluster of requests for unknown hosts. Those that are not plaintext HTTP go
// where CatchAllCluster says.
func CatchAllRequests(sc *push.Scope) string {
	if destination.ResolvesUnknown(sc) {
		return envoy.UnknownHosts
	}
	return CatchAllCluster(sc)
}

// HostCovers says whether every name that host stands for is one of pattern's.
func HostCovers(pattern, host string) bool {
	if suffix, wild := strings.CutPrefix(pattern, "*"); wild {
		return strings.HasSuffix(strings.TrimPrefix(host, "*"), suffix)
	}
	return pattern == host
}

// DestinationCluster is the cluster of a route's destination.
func DestinationCluster(d *networking.Destination, known *push.Destinations, listenPort uint32) string {
	return envoy.OutboundCluster(DestinationPort(d, known, listenPort), d.GetSubset(), d.GetHost())
}

// DestinationPort is the port that a destination names, else the only one of the service, else the
// listener's. Source: Istio.
func DestinationPort(d *networking.Destination, known *push.Destinations, listenPort uint32) uint32 {
	if n := d.GetPort().GetNumber(); n != 0 {
		return n
	}
	if to, ok := known.Get(d.GetHost()); ok && len(to.Service.Ports) == 1 {
		return to.Service.Ports[0].Number
	}
	return listenPort
}
