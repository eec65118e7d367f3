package config

import (
	"maps"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"
)

// meshGateway is the reserved name for all sidecars.
const meshGateway = "mesh"

// validateVirtualService checks routes.
func validateVirtualService(c *checker) {
	vs := spec[*networking.VirtualService](c)
	c.virtualHosts(vs)
	c.gateways("spec.gateways", vs.Gateways)
	c.exportTo("spec.exportTo", vs.ExportTo, false)
	if len(vs.Http)+len(vs.Tls)+len(vs.Tcp) == 0 {
		c.errorf("spec", "there is no route: write http, tls or tcp")
	}
	for i, r := range vs.Http {
		c.httpRoute(at("spec.http", i), r)
	}
	c.unreachable(vs)
	c.claimsAtGateways(vs)
	hosts := hostSetOf(vs.Hosts)
	for i, r := range vs.Tls {
		c.tlsRoute(at("spec.tls", i), hosts, r)
	}
	for i, r := range vs.Tcp {
		c.tcpRoute(at("spec.tcp", i), r)
	}
	c.matchedGateways(vs)
}

// virtualHosts checks the hosts that the routes are for.
func (c *checker) virtualHosts(vs *networking.VirtualService) {
	if len(vs.Hosts) == 0 {
		c.errorf("spec.hosts", "the hosts are missing; one without hosts is for delegation, which is not supported yet")
	}
	c.unique("spec.hosts", vs.Hosts)
	inMesh := len(vs.Gateways) == 0 || slices.Contains(vs.Gateways, meshGateway)
	for i, h := range vs.Hosts {
		path := at("spec.hosts", i)
		if h == "*" && inMesh {
			c.errorf(path, "the host * is only for gateways: name a host, or a gateway in spec.gateways")
		}
		if !isAddress(h) {
			c.why(path, checkWildcardHost(h))
		}
	}
}

// unreachable warns of HTTP routes behind one that matches everything.
func (c *checker) unreachable(vs *networking.VirtualService) {
	for i, r := range vs.Http {
		if !matchesAll(r) || i == len(vs.Http)-1 {
			continue
		}
		c.warnf(at("spec.http", i+1), "no request gets here: spec.http[%d] takes them all; put the general route last",
			i)
		return
	}
}

// matchesAll says whether every request is for r.
func matchesAll(r *networking.HTTPRoute) bool {
	return len(r.Match) == 0 || slices.ContainsFunc(r.Match, func(m *networking.HTTPMatchRequest) bool {
		uri := m.Uri == nil || m.Uri.GetPrefix() == "/"
		return uri && m.Scheme == nil && m.Method == nil && m.Authority == nil && len(m.Headers) == 0 && m.Port == 0 &&
			len(m.SourceLabels) == 0 && len(m.Gateways) == 0 && len(m.QueryParams) == 0 && len(m.WithoutHeaders) == 0 &&
			m.SourceNamespace == ""
	})
}

// claimsAtGateways refuses matches of token claims in a VirtualService for sidecars, where they
// match no request. Source: istio.io, "JWT claim based routing".
func (c *checker) claimsAtGateways(vs *networking.VirtualService) {
	if len(vs.Gateways) > 0 && !slices.Contains(vs.Gateways, meshGateway) {
		return
	}
	for i, r := range vs.Http {
		for j, m := range r.Match {
			path := at(at("spec.http", i)+".match", j)
			c.noClaims(path+".headers", m.Headers)
			c.noClaims(path+".withoutHeaders", m.WithoutHeaders)
		}
	}
}

func (c *checker) noClaims(path string, headers map[string]*networking.StringMatch) {
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		if strings.HasPrefix(name, claimPrefix) {
			c.errorf(entry(path, name), "claims are matched at gateways only, and this VirtualService is for %s: "+
				"name only Gateways in spec.gateways, or match another header", meshGateway)
		}
	}
}

// matchedGateways checks that matches name gateways that the VirtualService is bound to.
func (c *checker) matchedGateways(vs *networking.VirtualService) {
	bound := vs.Gateways
	if len(bound) == 0 {
		bound = []string{meshGateway}
	}
	known := make(map[string]bool, len(bound))
	for _, g := range bound {
		known[c.fullGateway(g)] = true
	}
	check := func(path string, names []string) {
		c.gateways(path, names)
		for i, g := range names {
			if !known[c.fullGateway(g)] {
				c.errorf(at(path, i), "%s is not in spec.gateways, so this never matches: add it there", quote(g))
			}
		}
	}
	for i, r := range vs.Http {
		for j, m := range r.Match {
			check(at(at("spec.http", i)+".match", j)+".gateways", m.Gateways)
		}
	}
	for i, r := range vs.Tls {
		for j, m := range r.Match {
			check(at(at("spec.tls", i)+".match", j)+".gateways", m.Gateways)
		}
	}
	for i, r := range vs.Tcp {
		for j, m := range r.Match {
			check(at(at("spec.tcp", i)+".match", j)+".gateways", m.Gateways)
		}
	}
}

// fullGateway is one spelling of a reference: in namespace shop "edge" and "./edge" are
// "shop/edge".
func (c *checker) fullGateway(name string) string {
	if name == meshGateway {
		return name
	}
	name = strings.TrimPrefix(name, "./")
	if strings.Contains(name, "/") {
		return name
	}
	return c.object.Namespace + "/" + name
}

// tlsRoute checks one route by SNI.
func (c *checker) tlsRoute(path string, hosts hostSet, r *networking.TLSRoute) {
	if len(r.Match) == 0 {
		c.errorf(path+".match", "a TLS route needs a match with sniHosts")
	}
	for i, m := range r.Match {
		p := at(path+".match", i)
		if len(m.SniHosts) == 0 {
			c.errorf(p+".sniHosts", "the server names (SNI) are missing")
		}
		for j, sni := range m.SniHosts {
			c.sni(at(p+".sniHosts", j), hosts, sni)
		}
		c.subnets(p+".destinationSubnets", m.DestinationSubnets)
		c.source(p, m.SourceLabels, m.SourceNamespace)
		c.optionalPort(p+".port", m.Port)
	}
	c.routeDestinations(path+".route", r.Route)
}

// sni checks one server name, which must be among the hosts.
func (c *checker) sni(path string, hosts hostSet, sni string) {
	if why := checkWildcardHost(sni); why != "" {
		c.errorf(path, "%s", why)
		return
	}
	if !hosts.covers(sni) {
		c.errorf(path, "%s is not covered by spec.hosts: add it there", quote(sni))
	}
}

// tcpRoute checks one route by address and port.
func (c *checker) tcpRoute(path string, r *networking.TCPRoute) {
	for i, m := range r.Match {
		p := at(path+".match", i)
		c.subnets(p+".destinationSubnets", m.DestinationSubnets)
		c.source(p, m.SourceLabels, m.SourceNamespace)
		c.optionalPort(p+".port", m.Port)
	}
	c.routeDestinations(path+".route", r.Route)
}

// source checks what a match says of the client.
func (c *checker) source(path string, labels map[string]string, namespace string) {
	c.labels(path+".sourceLabels", labels)
	if namespace != "" {
		c.why(path+".sourceNamespace", checkDNSLabel(namespace))
	}
}

// routeDestinations checks the destinations of a TLS or TCP route.
func (c *checker) routeDestinations(path string, routes []*networking.RouteDestination) {
	if len(routes) == 0 {
		c.errorf(path, "the destination is missing")
	}
	weights := make([]int32, 0, len(routes))
	for i, r := range routes {
		c.destination(at(path, i)+".destination", r.Destination)
		weights = append(weights, r.Weight)
	}
	c.weights(path, weights)
}
