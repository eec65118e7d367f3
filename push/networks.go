package push

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	mesh "istio.io/api/mesh/v1alpha1"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/registry"
)

// Networks holds Istio's MeshNetworks. Immutable.
type Networks struct {
	config     *mesh.MeshNetworks
	ranges     map[netip.Prefix]string // to their network
	registries map[string]string       // names of sources, to their network
	gateways   bool                    // some network has gateways
}

// NewNetworks returns the networks of a valid MeshNetworks.
func NewNetworks(m *mesh.MeshNetworks) *Networks {
	n := &Networks{config: m, ranges: map[netip.Prefix]string{}, registries: map[string]string{}}
	for name, network := range m.Networks {
		for _, e := range network.Endpoints {
			if r, err := config.ParseRange(e.GetFromCidr()); err == nil {
				n.ranges[r] = name
			} else {
				n.registries[e.GetFromRegistry()] = name
			}
		}
		n.gateways = n.gateways || len(network.Gateways) > 0
	}
	return n
}

// gated reports whether a network has gateways, so that proxies have to know their own network.
func (n *Networks) gated() bool { return n != nil && n.gateways }

// ofAddress returns the network with a range that contains an address, or an empty name.
func (n *Networks) ofAddress(a netip.Addr) string {
	if n != nil {
		for r, name := range n.ranges {
			if r.Contains(a.Unmap()) {
				return name
			}
		}
	}
	return ""
}

// assign returns instances from a source, whose endpoints have their network: their own, or else
// that of the source, or else that of their address.
// Source: Istio, Controller.Network.
func (n *Networks) assign(in registry.Instances, source string) registry.Instances {
	if n == nil {
		return in
	}
	items := slices.Clone(in.Endpoints.All())
	ofSource := n.registries[source[strings.Index(source, ":")+1:]] // "consul:west" is west
	for i := range items {
		a, _ := netip.ParseAddr(items[i].Address)
		items[i].Network = cmp.Or(items[i].Network, ofSource, n.ofAddress(a))
	}
	in.Endpoints = &registry.EndpointList{Items: items}
	return in
}

// network returns the network that a node declares. Empty if it declares none.
func (n Node) network() string {
	for _, l := range n.Labels.Items() {
		if n.Network == "" && l.Key == registry.NetworkLabel {
			return l.Value
		}
	}
	return n.Network
}

// networkOf returns the network of a proxy: the one that it declares, or else that of its endpoints,
// or else that of its address. Empty if none is known.
func (c *Context) networkOf(n Node) string {
	network := n.network()
	for _, w := range c.endpointsOf(n) {
		network = cmp.Or(network, w.network)
	}
	for _, a := range n.IPs.Items() {
		network = cmp.Or(network, c.in.Mesh.Networks.ofAddress(a))
	}
	return network
}

// networkGateway is an address at which a network is reached from others. The zero address stands for
// a network that has gateways, of which there may be none at the moment.
type networkGateway struct {
	network string
	at      netip.AddrPort
}

// findNetworkGateways returns the gateways of all networks: the addresses in MeshNetworks, and the
// healthy endpoints of the services that it names. Sorted.
func (c *Context) findNetworkGateways() *intern.List[networkGateway] {
	if !c.in.Mesh.Networks.gated() {
		return nil
	}
	var out []networkGateway
	for name, network := range c.in.Mesh.Networks.config.Networks {
		for _, g := range network.Gateways {
			out = append(out, networkGateway{network: name})
			if a, err := netip.ParseAddr(g.GetAddress()); err == nil {
				out = append(out, networkGateway{name, netip.AddrPortFrom(a.Unmap(), uint16(g.Port))})
			}
			for _, at := range c.addressesOf(g.GetRegistryServiceName(), g.Port) {
				out = append(out, networkGateway{name, at})
			}
		}
	}
	slices.SortFunc(out, func(a, b networkGateway) int {
		return cmp.Or(strings.Compare(a.network, b.network), a.at.Compare(b.at))
	})
	return c.tables.gateways.Of(slices.Compact(out))
}

// addressesOf returns the external addresses of the service with a host, or else its healthy
// endpoints at a port. If the service does not have the port, it is that of the endpoints.
func (c *Context) addressesOf(host string, number uint32) (out []netip.AddrPort) {
	for key, s := range c.in.Services.From(registry.Key{Host: host}) {
		if key.Host != host {
			break
		}
		for _, a := range s.ExternalAddresses {
			out = append(out, netip.AddrPortFrom(a, uint16(number)))
		}
		endpoints := c.in.Endpoints.At(key)
		if len(s.ExternalAddresses) > 0 {
			endpoints = nil // other networks do not reach them
		}
		for i := range endpoints.All() {
			ep, port := &endpoints.Items[i], number
			if p, ok := s.Port(number); ok {
				port = ep.Port(p)
			}
			if a, err := netip.ParseAddr(ep.Address); err == nil && port != 0 && ep.Health == registry.Healthy {
				out = append(out, netip.AddrPortFrom(a.Unmap(), uint16(port)))
			}
		}
	}
	return out
}

// NetworkGateways are the gateways by which the proxies of one network reach the others. Equal
// values are one pointer.
type NetworkGateways struct {
	own       string
	byNetwork map[string][]netip.AddrPort // of each network with gateways, those that the proxies can reach
	scale     uint32
}

// networkGatewaysIn holds everything that NetworkGateways depend on.
type networkGatewaysIn struct {
	gateways *intern.List[networkGateway]
	own      string
	// ipv4 and ipv6 are the families of the addresses that the proxies can reach.
	ipv4, ipv6 bool
}

// networkGatewaysFor returns Scope.NetworkGateways.
func (c *Context) networkGatewaysFor(f Facets) *NetworkGateways {
	if !c.in.Mesh.Networks.gated() {
		return nil
	}
	return c.tables.gatewaysOf.Get(networkGatewaysIn{c.networkGateways, f.Network, !f.IPv6Only,
		f.IPv6Only || f.DualStack})
}

func newNetworkGateways(in networkGatewaysIn) *NetworkGateways {
	g := &NetworkGateways{own: in.own, byNetwork: map[string][]netip.AddrPort{}, scale: 1}
	for _, to := range in.gateways.Items() {
		list := g.byNetwork[to.network]
		if a := to.at.Addr(); a.Is4() && in.ipv4 || a.Is6() && in.ipv6 {
			list = append(list, to.at)
		}
		g.byNetwork[to.network] = list
	}
	for _, list := range g.byNetwork {
		g.scale = min(max(g.scale, leastCommonMultiple(g.scale, uint32(len(list)))), maxScale)
	}
	return g
}

// maxScale bounds Scale: weights have to fit into 32 bits. With so many gateways, the shares of the
// gateways are rounded.
const maxScale = 1000

// leastCommonMultiple returns zero if b is zero.
func leastCommonMultiple(a, b uint32) uint32 {
	x, y := a, b
	for y != 0 {
		x, y = y, x%y
	}
	return a / x * b
}

// Scale is what weights of endpoints have to be multiplied by, so that they can be divided among the
// gateways of any network. Source: Istio, GetLBWeightScaleFactor.
func (g *NetworkGateways) Scale() uint32 {
	if g == nil {
		return 1
	}
	return g.scale
}

// To returns the gateways by which the proxies reach endpoints of a network. direct means that they
// connect to the endpoints themselves: the network is theirs or has no gateways, or the endpoint has
// none. A proxy without a network uses the gateways of every network. Source: Istio,
// EndpointsByNetworkFilter; unlike there, a network whose gateways are all gone is not reached.
func (g *NetworkGateways) To(network string) (gateways []netip.AddrPort, direct bool) {
	if g == nil || network == "" || network == g.own {
		return nil, true
	}
	gateways, gated := g.byNetwork[network]
	return gateways, !gated
}
