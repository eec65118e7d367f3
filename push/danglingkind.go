package push

import (
	"fmt"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/registry"
)

// routeKind is a list of routes in a VirtualService.
type routeKind string

const (
	httpRoutes routeKind = "http"
	tcpRoutes  routeKind = "tcp"
	tlsRoutes  routeKind = "tls"
)

// server says which servers take routes of the kind.
func (k routeKind) server() string {
	switch k {
	case httpRoutes:
		return "protocol HTTP, or HTTPS with TLS that the server ends"
	case tcpRoutes:
		return "protocol TCP, or TLS that the server ends"
	default:
		return "tls.mode PASSTHROUGH"
	}
}

// kindsOf are those that a VirtualService has.
func kindsOf(spec *networking.VirtualService) []routeKind {
	var out []routeKind
	if len(spec.Http) > 0 {
		out = append(out, httpRoutes)
	}
	if len(spec.Tcp) > 0 {
		out = append(out, tcpRoutes)
	}
	if len(spec.Tls) > 0 {
		out = append(out, tlsRoutes)
	}
	return out
}

// kindTaken is the one that a server takes; empty: none. Package gen makes listeners in that way.
func kindTaken(s *networking.Server) routeKind {
	protocol, _ := registry.ParseProtocol(s.GetPort().GetProtocol())
	switch {
	case protocol == registry.UDP:
		return ""
	case protocol.IsHTTP():
		return httpRoutes
	case s.Tls == nil:
		return tcpRoutes
	case s.Tls.Mode == networking.ServerTLSSettings_PASSTHROUGH || s.Tls.Mode == networking.ServerTLSSettings_AUTO_PASSTHROUGH:
		return tlsRoutes
	case protocol == registry.HTTPS:
		return httpRoutes
	default:
		return tcpRoutes
	}
}

// routeKinds checks that each Gateway of a VirtualService takes routes of a kind that it has: from some server that
// admits one of its hosts.
func (d *dangling) routeKinds(vs *VirtualService) {
	kinds := kindsOf(vs.Spec)
	if len(kinds) == 0 || len(d.routed(vs)) == 0 {
		return
	}
	for i, name := range vs.Spec.Gateways {
		namespace, short, _ := strings.Cut(name, "/")
		o, ok := d.context.gateways.byKey.Get(config.Key{Kind: config.Gateway, Namespace: namespace, Name: short})
		if !ok {
			continue // sidecars, or there is no such Gateway
		}
		taken := kindsTaken(o, vs)
		if len(taken) == 0 || shareKind(kinds, taken) {
			continue
		}
		d.warn(vs.Object.Key, fmt.Sprintf("spec.gateways[%d]", i), "no server of %s that admits these hosts takes %s routes, and the object has no others, so nothing of it is served there: "+
			"write %s routes instead, or add a server for %s routes (%s)", o.Key, orText(kinds), orText(taken), kinds[0], kinds[0].server())
	}
}

// kindsTaken are those that a Gateway takes from a VirtualService, each once.
func kindsTaken(o *config.Object, vs *VirtualService) []routeKind {
	has := map[routeKind]bool{}
	for i, s := range o.Spec.(*networking.Gateway).Servers {
		if len(claimOf(o, i, s).serves(vs)) > 0 {
			has[kindTaken(s)] = true
		}
	}
	var out []routeKind
	for _, k := range []routeKind{httpRoutes, tcpRoutes, tlsRoutes} {
		if has[k] {
			out = append(out, k)
		}
	}
	return out
}

// shareKind says whether a kind is in both lists.
func shareKind(a, b []routeKind) bool {
	for _, k := range a {
		for _, o := range b {
			if k == o {
				return true
			}
		}
	}
	return false
}

// orText is a list of kinds for people.
func orText(kinds []routeKind) string {
	var out []string
	for _, k := range kinds {
		out = append(out, string(k))
	}
	return strings.Join(out, " or ")
}
