package push

import (
	"cmp"
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

// namedPort is an endpoint's own number for a port of its service.
type namedPort struct {
	Name   string
	Number uint32
}

// workload is what the proxy of an endpoint needs to know about it.
type workload struct {
	namespace string
	locality  registry.Locality
	ports     *intern.List[namedPort]
	// mutual and intercepted are what clients expect: Endpoint.TLSMode is "istio",
	// Endpoint.Intercepted.
	mutual, intercepted bool
	// states are those of its ports, unless it is intercepted.
	states registry.PortStates
}

// workloads is the index of endpoints by address: how a sidecar finds what it serves.
type workloads struct {
	byAddress pmap.Map[addressKey, *intern.List[workload]]
}

// with returns the index with the changed endpoints of one service.
func (x workloads) with(t *tables, ch pmap.Change[registry.Key, *registry.EndpointList]) workloads {
	old, now := workloadsOf(t, ch.Old), workloadsOf(t, ch.New)
	for a := range old {
		if _, stays := now[a]; !stays {
			x.byAddress = x.byAddress.Without(addressKey{a, ch.Key})
		}
	}
	for a, w := range now {
		if !slices.Equal(old[a], w) {
			x.byAddress = x.byAddress.With(addressKey{a, ch.Key}, t.workloads.Of(w))
		}
	}
	return x
}

// workloadsOf lists the endpoints of l by address, those with an IP address only.
func workloadsOf(t *tables, l *registry.EndpointList) map[netip.Addr][]workload {
	if l.Len() == 0 {
		return nil
	}
	out := make(map[netip.Addr][]workload, l.Len())
	for i := range l.Items {
		ep := &l.Items[i]
		a, err := netip.ParseAddr(ep.Address)
		if err != nil {
			continue // a name or a unix socket; the address of a proxy is an IP address
		}
		w := workload{
			namespace: ep.Namespace, locality: ep.Locality, ports: t.ports.Of(portsOf(ep)),
			mutual: ep.TLSMode == tlsModeIstio, intercepted: ep.Intercepted(),
		}
		if !w.intercepted {
			w.states = ep.States
		}
		a = a.Unmap() // as the addresses of a proxy
		out[a] = append(out[a], w)
	}
	return out
}

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
func (x workloads) at(address netip.Addr) func(yield func(registry.Key, workload) bool) {
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

// state is the state of a port. It is the same whether the proxy listens there already or not.
func (w workload) state(port uint32) registry.PortState {
	s := w.states.At(port)
	if s == registry.PortListener {
		return registry.PortLoopback
	}
	return s
}

// target is where the workload listens for port p of its service; zero: it does not.
func (w workload) target(p registry.Port) uint32 {
	for _, own := range w.ports.Items() {
		if own.Name == p.Name {
			return own.Number
		}
	}
	return cmp.Or(p.TargetPort, p.Number)
}
