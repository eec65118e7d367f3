package entry

import (
	"slices"
	"strconv"
	"strings"

	"github.com/ashore-mesh/ashore/registry"
)

// unite makes one service of the declarations of one host, the deciding one first. It has the ports
// of all of them. An endpoint serves only the ports of its own declaration, and none whose protocol
// is another one there. All other settings are those of the first; a declaration with another
// resolution or exportTo is not used, so private endpoints are never exported.
// Source: Istio merges the ports of services of one host and namespace (SidecarScope).
func unite(parts []registry.Instances) registry.Instances {
	first := parts[0].Service
	parts = slices.DeleteFunc(slices.Clone(parts), func(p registry.Instances) bool {
		return p.Service.Resolution != first.Resolution || !slices.Equal(p.Service.ExportTo, first.ExportTo)
	})
	if len(parts) == 1 {
		return parts[0]
	}
	service := *first
	service.Ports = unitedPorts(parts)
	u := union{ports: service.Ports, at: map[string][]int{}}
	for _, p := range parts {
		u.add(p)
	}
	return registry.Instances{Service: &service, Endpoints: u.endpoints()}
}

// unitedPorts are the ports of all declarations. Of several with one number the first counts, and a
// name that is taken gets the number appended: endpoints name their ports.
func unitedPorts(parts []registry.Instances) []registry.Port {
	ports := slices.Clip(parts[0].Service.Ports)
	for _, part := range parts[1:] {
		for _, p := range part.Service.Ports {
			if slices.ContainsFunc(ports, func(q registry.Port) bool { return q.Number == p.Number }) {
				continue
			}
			for slices.ContainsFunc(ports, func(q registry.Port) bool { return strings.EqualFold(q.Name, p.Name) }) {
				p.Name += "-" + strconv.FormatUint(uint64(p.Number), 10)
			}
			ports = append(ports, p)
		}
	}
	return ports
}

// union collects the endpoints of several declarations.
type union struct {
	ports []registry.Port
	all   []listening
	at    map[string][]int // indexes of all, by address
}

// listening is an endpoint and where it listens for each port of the service; zero: nowhere.
type listening struct {
	registry.Endpoint
	numbers []uint32
}

// add adds the endpoints of one declaration. Of an endpoint that an earlier one has, with the same
// address and number, the earlier one counts. A workload that an earlier one has too gets its
// further ports.
func (u *union) add(part registry.Instances) {
	earlier := len(u.all)
	for i := range part.Endpoints.All() {
		e := u.listening(&part.Endpoints.Items[i], part.Service)
		for _, at := range u.at[e.Address] {
			if at < earlier {
				u.all[at].take(&e)
			}
		}
		if !slices.ContainsFunc(e.numbers, func(n uint32) bool { return n != 0 }) {
			continue
		}
		u.at[e.Address] = append(u.at[e.Address], len(u.all))
		u.all = append(u.all, e)
	}
}

// listening finds where an endpoint of a declaration listens.
func (u *union) listening(e *registry.Endpoint, declared *registry.Service) listening {
	out := listening{Endpoint: *e, numbers: make([]uint32, len(u.ports))}
	for i, p := range u.ports {
		if own, has := declared.Port(p.Number); has && !p.Protocol.Contradicts(own.Protocol) {
			out.numbers[i] = e.Port(own)
		}
	}
	return out
}

// take takes from a later endpoint of the same address what l has, and the ports that l lacks if
// the two are one workload.
func (l *listening) take(later *listening) {
	a, b := l.Endpoint, later.Endpoint
	a.Ports, b.Ports = nil, nil
	same := a.Equal(&b)
	for i, n := range later.numbers {
		if same && l.numbers[i] == 0 {
			l.numbers[i] = n
		}
		if l.numbers[i] == n {
			later.numbers[i] = 0
		}
	}
}

// endpoints are all that were added, with their numbers where these are not the service's.
func (u *union) endpoints() *registry.EndpointList {
	out := &registry.EndpointList{Items: make([]registry.Endpoint, len(u.all))}
	for i, l := range u.all {
		l.Ports = nil
		for j, p := range u.ports {
			if l.Port(p) == l.numbers[j] {
				continue
			}
			if l.Ports == nil {
				l.Ports = map[string]uint32{}
			}
			l.Ports[p.Name] = l.numbers[j]
		}
		out.Items[i] = l.Endpoint
	}
	return out
}
