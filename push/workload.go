package push

import (
	"cmp"
	"iter"
	"net/netip"
	"slices"

	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/internal/pmap"
	"github.com/ashore-mesh/ashore/registry"
)

// addressKey is one service at one address.
type addressKey struct {
	address netip.Addr
	service registry.Key
}

// Compare orders by address, then service.
func (k addressKey) Compare(o addressKey) int {
	return cmp.Or(k.address.Compare(o.address), k.service.Compare(o.service))
}

// namedPort is the port number that an endpoint uses for a named service port.
type namedPort struct {
	Name   string
	Number uint32
}

// workload holds the endpoint fields that the endpoint's own proxy needs.
type workload struct {
	namespace, network string
	locality           registry.Locality
	ports              *intern.List[namedPort]
	// mtls means that Endpoint.TLSMode is registry.TLSModeIstio.
	mtls bool
	// intercepted is Endpoint.Intercepted.
	intercepted bool
	// states holds the port states. It is empty if traffic is intercepted.
	states registry.PortStates
}

// workloadIndex indexes endpoints by IP address. A sidecar uses it to find the services it serves.
type workloadIndex struct {
	byAddress pmap.Map[addressKey, *intern.List[workload]]
}

// with returns a copy of the index with ch applied.
func (x workloadIndex) with(t *tables, ch pmap.Change[registry.Key, *registry.EndpointList]) workloadIndex {
	previous, current := workloadsOf(t, ch.Old), workloadsOf(t, ch.New)
	for a := range previous {
		if _, stays := current[a]; !stays {
			x.byAddress = x.byAddress.Without(addressKey{a, ch.Key})
		}
	}
	for a, w := range current {
		if !slices.Equal(previous[a], w) {
			x.byAddress = x.byAddress.With(addressKey{a, ch.Key}, t.workloads.Of(w))
		}
	}
	return x
}

// workloadsOf returns the endpoints of l that have an IP address, by that address.
func workloadsOf(t *tables, l *registry.EndpointList) map[netip.Addr][]workload {
	if l.Len() == 0 {
		return nil
	}
	out := make(map[netip.Addr][]workload, l.Len())
	for i := range l.Items {
		ep := &l.Items[i]
		a, err := netip.ParseAddr(ep.Address)
		if err != nil {
			continue // a DNS name or a Unix socket
		}
		a = a.Unmap() // "::ffff:10.0.0.1" is 10.0.0.1, as in the node of a proxy
		w := workload{
			namespace: ep.Namespace, network: ep.Network, locality: ep.Locality, ports: t.ports.Of(portsOf(ep)),
			mtls: ep.TLSMode == registry.TLSModeIstio, intercepted: ep.Intercepted(),
		}
		if !w.intercepted {
			w.states = ep.States
		}
		out[a] = append(out[a], w)
	}
	return out
}

// portsOf returns the named ports of an endpoint, sorted by name.
func portsOf(ep *registry.Endpoint) []namedPort {
	if len(ep.Ports) == 0 {
		return nil
	}
	out := make([]namedPort, 0, len(ep.Ports))
	for name, number := range ep.Ports {
		out = append(out, namedPort{name, number})
	}
	slices.SortFunc(out, func(a, b namedPort) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// at yields the services with an endpoint at address, and that endpoint.
func (x workloadIndex) at(address netip.Addr) iter.Seq2[registry.Key, workload] {
	return func(yield func(registry.Key, workload) bool) {
		for k, ws := range x.byAddress.From(addressKey{address: address}) {
			if k.address != address {
				return
			}
			for _, w := range ws.Items() {
				if !yield(k.service, w) {
					return
				}
			}
		}
	}
}

// state returns the state of a port. It is the same before and after the proxy adds its listener.
func (w workload) state(port uint32) registry.PortState {
	s := w.states.At(port)
	if s == registry.PortListener {
		return registry.PortLoopback
	}
	return s
}

// target returns the workload port for service port p, or 0 if there is none.
func (w workload) target(p registry.Port) uint32 {
	for _, named := range w.ports.Items() {
		if named.Name == p.Name {
			return named.Number
		}
	}
	return cmp.Or(p.TargetPort, p.Number)
}
