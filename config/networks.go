package config

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	mesh "istio.io/api/mesh/v1alpha1"
)

// DefaultGatewayPort is the port of a network's gateway whose entry has none.
// Source: Istio, DefaultNetworkGatewayPort.
const DefaultGatewayPort = 15443

// ParseNetworks reads a file with Istio's MeshNetworks, and fills in the default port of gateways.
// The result must not take effect if a problem is an error.
func ParseNetworks(file string, data []byte) (*mesh.MeshNetworks, []Problem) {
	m := &mesh.MeshNetworks{}
	d := &decoder{parser: newParser(file, data), where: fieldLines{}}
	documents := d.documents(data)
	if len(documents) > 1 {
		d.errorf("", documents[1], "want one document, with the field networks")
	}
	for _, root := range documents[:min(len(documents), 1)] {
		if d.affordable(root) {
			d.message("", m.ProtoReflect(), root)
		}
	}
	if d.errors == 0 {
		c := networksChecker{checker: checker{object: &Object{}}, registries: map[string]string{}}
		for _, name := range slices.Sorted(maps.Keys(m.Networks)) {
			c.network(name, m.Networks[name])
		}
		for _, problem := range c.problems {
			problem.Object, problem.Line = "", d.where.of(problem.Field, 1)
			d.report(problem)
		}
	}
	return m, d.sortedProblems()
}

// networksChecker checks networks one after the other, against those before.
type networksChecker struct {
	checker
	ranges     []networkRange
	registries map[string]string // to their network
}

// networkRange is a range of addresses in a network.
type networkRange struct {
	netip.Prefix
	network string
}

// network checks a network. Source: Istio, ValidateMeshNetworks; that ranges do not overlap is a rule
// of the API's description.
func (c *networksChecker) network(name string, n *mesh.Network) {
	path := entry("networks", name)
	c.why(path, checkNetwork(name))
	for i, e := range n.Endpoints {
		path := at(path+".endpoints", i)
		switch e := e.Ne.(type) {
		case *mesh.Network_NetworkEndpoints_FromCidr:
			c.cidr(path+".fromCidr", name, e.FromCidr)
		case *mesh.Network_NetworkEndpoints_FromRegistry:
			path += ".fromRegistry"
			c.why(path, checkDNSLabel(e.FromRegistry))
			if other, taken := c.registries[e.FromRegistry]; taken && other != name {
				c.errorf(path, "%s is in network %s too: a registry is in one network", quote(e.FromRegistry), other)
			}
			c.registries[e.FromRegistry] = name
		default:
			c.errorf(path, "fromCidr or fromRegistry is missing")
		}
	}
	for i, g := range n.Gateways {
		c.gateway(at(path+".gateways", i), g)
	}
}

// cidr checks a range of addresses, or one address.
func (c *networksChecker) cidr(path, network, text string) {
	p, err := ParseRange(text)
	if err != nil {
		c.errorf(path, "%s is not a range of addresses: write one such as 10.1.0.0/16", quote(text))
		return
	}
	for _, r := range c.ranges {
		if r.Overlaps(p) && r.network != network {
			c.errorf(path, "%s overlaps with %s of network %s: an address is in one network", p, r.Prefix, r.network)
		}
	}
	c.ranges = append(c.ranges, networkRange{p, network})
}

// ParseRange reads "10.1.0.0/16", or "10.1.0.1" as the range of this address.
func ParseRange(text string) (netip.Prefix, error) {
	if !strings.Contains(text, "/") {
		a, err := netip.ParseAddr(text)
		return netip.PrefixFrom(a, a.BitLen()), err
	}
	p, err := netip.ParsePrefix(text)
	return p.Masked(), err
}

// gateway checks a gateway of a network.
func (c *networksChecker) gateway(path string, g *mesh.Network_IstioNetworkGateway) {
	switch a := g.Gw.(type) {
	case *mesh.Network_IstioNetworkGateway_Address:
		if ip, err := netip.ParseAddr(a.Address); err != nil || ip.Zone() != "" {
			c.unsupported(path+".address", fmt.Sprintf("%s, which is not an IP address", quote(a.Address)),
				"write the IP address, or registryServiceName with a service whose endpoints are the gateways")
		}
	case *mesh.Network_IstioNetworkGateway_RegistryServiceName:
		c.why(path+".registryServiceName", checkLowerHost(a.RegistryServiceName))
	default:
		c.errorf(path, "address or registryServiceName is missing")
	}
	if g.Locality != "" {
		c.warnf(path+".locality", "a gateway has the locality of the nearest endpoint behind it, so this has no effect: remove it")
	}
	def(&g.Port, DefaultGatewayPort)
	if g.Port > 65535 {
		c.errorf(path+".port", "a port is a number from 1 to 65535, not %d", g.Port)
	}
}
