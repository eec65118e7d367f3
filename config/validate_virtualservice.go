package config

import (
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"
)

// meshGateway is the reserved name for all sidecars.
const meshGateway = "mesh"

// virtualService checks routes.
func (c *checker) virtualService(vs *networking.VirtualService) {
	bound := vs.Gateways
	if len(bound) == 0 {
		bound = []string{meshGateway}
	}
	c.hosts, c.gateways, c.delegate = hostSetOf(vs.Hosts), map[string]bool{}, len(vs.Hosts) == 0
	for _, g := range bound {
		c.gateways[c.fullGateway(g)] = true
	}
	if c.delegate {
		c.refuse("spec", present(vs, "gateways", "tls", "tcp"),
			"without hosts this VirtualService is a delegate of others, which has HTTP routes only: remove it, or write hosts")
	}
	if i := slices.Index(vs.Hosts, "*"); i >= 0 && c.gateways[meshGateway] {
		c.errorf(at("spec.hosts", i),
			"the host * is only for gateways: name a host, or a gateway in spec.gateways")
	}
	if len(vs.Http)+len(vs.Tls)+len(vs.Tcp) == 0 {
		c.errorf("spec", "there is no route: write http, tls or tcp")
	}
	if i := slices.IndexFunc(vs.Http, matchesAll); i >= 0 && i < len(vs.Http)-1 {
		c.warnf(at("spec.http", i+1), "no request gets here: spec.http[%d] takes them all; put the general route last",
			i)
	}
}

// matchesAll says whether every request is for r.
func matchesAll(r *networking.HTTPRoute) bool {
	if r.Delegate != nil {
		return false // its delegate may match less
	}
	return len(r.Match) == 0 || slices.ContainsFunc(r.Match, func(m *networking.HTTPMatchRequest) bool {
		return (m.Uri == nil || m.Uri.GetPrefix() == "/") &&
			len(others(m, "name", "uri", "ignoreUriCase", "statPrefix")) == 0
	})
}

// boundGateways checks that a match names gateways that the VirtualService is bound to.
func (c *checker) boundGateways(path string, names []string) {
	if c.delegate {
		return // those of the VirtualService that delegates count
	}
	for i, g := range names {
		if !c.gateways[c.fullGateway(g)] {
			c.errorf(at(path+".gateways", i), "%s is not in spec.gateways, so this never matches: add it there", quote(g))
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

// checkGatewayName is the rule for references to Gateways.
func checkGatewayName(text string) string {
	namespace, name, qualified := strings.Cut(text, "/")
	switch {
	case text == "":
		return "the name of the Gateway is missing"
	case !qualified:
		return checkObjectName(text)
	case namespace != "." && checkDNSLabel(namespace) != "":
		return checkDNSLabel(namespace)
	}
	return checkObjectName(name)
}

// checkVirtualHost is the rule for the hosts that routes are for.
func checkVirtualHost(host string) string {
	if isAddress(host) {
		return ""
	}
	return checkWildcardHost(host)
}

// checkDestination is the rule for the service of a destination, which may have a wildcard host.
func checkDestination(host string) string {
	if host == "*" {
		return "a service cannot have the name of all hosts: name a service, such as web or *.example.com"
	}
	return checkWildcardHost(host)
}

// tlsRoute checks one route by SNI.
func (c *checker) tlsRoute(path string, r *networking.TLSRoute) {
	if len(r.Match) == 0 {
		c.errorf(path+".match", "a TLS route needs a match with sniHosts")
	}
	routeDestinations(c, path+".route", r.Route)
}

// tlsMatch checks server names, which must be among the hosts.
func (c *checker) tlsMatch(path string, m *networking.TLSMatchAttributes) {
	c.boundGateways(path, m.Gateways)
	if len(m.SniHosts) == 0 {
		c.errorf(path+".sniHosts", "the server names (SNI) are missing")
	}
	for i, sni := range m.SniHosts {
		why := checkWildcardHost(sni)
		if why == "" && !c.hosts.covers(sni) {
			why = quote(sni) + " is not covered by spec.hosts: add it there"
		}
		c.why(at(path+".sniHosts", i), why)
	}
}

// routeDestinations checks the destinations of a route and their weights.
func routeDestinations[T interface {
	GetDestination() *networking.Destination
	GetWeight() int32
}](c *checker, path string, routes []T) {
	// Envoy adds weights up in 32 bits
	const limit = 1<<32 - 1
	var sum int64
	for i, r := range routes {
		sum += int64(r.GetWeight())
		if r.GetDestination() == nil {
			c.errorf(at(path, i)+".destination", "the destination is missing")
		}
	}
	switch {
	case len(routes) == 0:
		c.errorf(path, "the destination is missing")
	case sum > limit:
		c.errorf(path, "the weights add up to %d, more than %d", sum, limit)
	case len(routes) > 1 && sum == 0:
		c.errorf(path, "all weights are 0, and nothing would be sent anywhere: give the destinations weights, such as 80 and 20")
	case len(routes) == 1 && sum != 0 && sum != 100:
		c.warnf(path+"[0].weight", "a single destination gets everything: the weight %d has no effect", sum)
	}
}
