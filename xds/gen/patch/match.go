package patch

import (
	"slices"
	"strconv"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/xds/gen/envoy"
)

// isVirtual reports whether a listener takes redirected connections for all ports.
func isVirtual(l *listenerv3.Listener) bool {
	return l.Name == "virtualInbound" || l.Name == "virtualOutbound"
}

// matchesListener reports whether a patch is for a listener. What it says of ports is about the
// filter chains of listeners for all ports.
func (p *patch) matchesListener(l *listenerv3.Listener) bool {
	m := p.GetMatch().GetListener()
	if m.GetName() != "" && m.GetName() != l.Name {
		return false
	}
	if p.ApplyTo != networking.EnvoyFilter_LISTENER && isVirtual(l) {
		return true
	}
	return m.GetPortNumber() == 0 || m.GetPortNumber() == l.GetAddress().GetSocketAddress().GetPortValue()
}

// matchesChain reports whether a patch is for a filter chain of a listener that it matches.
func (p *patch) matchesChain(l *listenerv3.Listener, c *listenerv3.FilterChain) bool {
	m := p.GetMatch().GetListener()
	want, has := m.GetFilterChain(), c.GetFilterChainMatch()
	port := has.GetDestinationPort().GetValue()
	switch {
	case isVirtual(l) && m.GetPortNumber() != 0 && m.GetPortNumber() != port,
		want.GetName() != "" && want.GetName() != c.Name,
		want.GetSni() != "" && !slices.Contains(has.GetServerNames(), want.GetSni()),
		want.GetTransportProtocol() != "" && want.GetTransportProtocol() != has.GetTransportProtocol(),
		want.GetDestinationPort() != 0 && want.GetDestinationPort() != port:
		return false
	}
	if want.GetApplicationProtocols() == "" {
		return true
	}
	for alpn := range strings.SplitSeq(want.GetApplicationProtocols(), ",") {
		if !slices.Contains(has.GetApplicationProtocols(), alpn) {
			return false
		}
	}
	return true
}

// matchesRoutes reports whether a match is for the route configuration of that name. Names of
// sidecars are ports, and those of gateways have the parts of their servers.
// Source: Istio, model.ParseGatewayRDSRouteName.
func matchesRoutes(m *networking.EnvoyFilter_RouteConfigurationMatch, name string, of side) bool {
	if m.GetName() != "" && m.GetName() != name {
		return false
	}
	port, portName, gateway := name, "", ""
	switch parts := strings.Split(name, "."); {
	case of == networking.EnvoyFilter_SIDECAR_INBOUND:
		port = clusterNameOf(name).port
	case of != networking.EnvoyFilter_GATEWAY:
	case parts[0] == "http" && len(parts) >= 2:
		port = parts[1]
	case parts[0] == "https" && len(parts) >= 5:
		port, portName, gateway = parts[1], parts[2], parts[4]+"/"+parts[3]
	}
	if of == networking.EnvoyFilter_GATEWAY && (m.GetPortName() != "" && m.GetPortName() != portName ||
		m.GetGateway() != "" && m.GetGateway() != gateway) {
		return false
	}
	return isPort(m.GetPortNumber(), port)
}

// isPort reports whether text is the number that is wanted; zero: any.
func isPort(want uint32, text string) bool {
	return want == 0 || strconv.FormatUint(uint64(want), 10) == text
}

// matchesHost reports whether a patch is for a virtual host.
func matchesHost(h *routev3.VirtualHost, p *patch) bool {
	m := p.GetMatch().GetRouteConfiguration().GetVhost()
	return (m.GetName() == "" || m.GetName() == h.Name) &&
		(m.GetDomainName() == "" || slices.Contains(h.Domains, m.GetDomainName()))
}

// matchesRoute reports whether a patch is for a route.
func matchesRoute(r *routev3.Route, p *patch) bool {
	m := p.GetMatch().GetRouteConfiguration().GetVhost().GetRoute()
	if m.GetName() != "" && m.GetName() != r.Name {
		return false
	}
	action := m.GetAction()
	switch r.Action.(type) {
	case *routev3.Route_Route:
		return action == networking.EnvoyFilter_RouteConfigurationMatch_RouteMatch_ANY ||
			action == networking.EnvoyFilter_RouteConfigurationMatch_RouteMatch_ROUTE
	case *routev3.Route_Redirect:
		return action == networking.EnvoyFilter_RouteConfigurationMatch_RouteMatch_ANY ||
			action == networking.EnvoyFilter_RouteConfigurationMatch_RouteMatch_REDIRECT
	case *routev3.Route_DirectResponse:
		return action == networking.EnvoyFilter_RouteConfigurationMatch_RouteMatch_ANY ||
			action == networking.EnvoyFilter_RouteConfigurationMatch_RouteMatch_DIRECT_RESPONSE
	}
	return true
}

// clusterName has the parts of a cluster's name. Source: Istio, model.ParseSubsetKey.
type clusterName struct{ direction, port, subset, host string }

func clusterNameOf(name string) clusterName {
	parts := strings.Split(name, "|")
	if len(parts) != 4 {
		return clusterName{}
	}
	return clusterName{parts[0], parts[1], parts[2], parts[3]}
}

// matchesCluster reports whether a match is for the cluster of that name. services are those of an
// inbound cluster; nil: they are not known, and any may be meant.
func matchesCluster(m *networking.EnvoyFilter_ClusterMatch, name string, services []string) bool {
	if m == nil || m.Name != "" {
		return m == nil || m.Name == name
	}
	c := clusterNameOf(name)
	switch {
	case m.GetService() == "":
	case c.direction == "inbound" && services == nil:
	case c.direction == "inbound":
		if !slices.Contains(services, m.GetService()) {
			return false
		}
	case m.GetService() != c.host:
		return false
	}
	return (m.GetSubset() == "" || m.GetSubset() == c.subset) && isPort(m.GetPortNumber(), c.port)
}

// servicesOf are the hosts of the services of a cluster, never nil.
func servicesOf(c *clusterv3.Cluster) []string {
	out := []string{}
	istio := c.GetMetadata().GetFilterMetadata()[envoy.IstioMetadata].GetFields()
	for _, s := range istio["services"].GetListValue().GetValues() {
		out = append(out, s.GetStructValue().GetFields()["host"].GetStringValue())
	}
	return out
}
