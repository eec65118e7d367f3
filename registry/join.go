package registry

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/ashore-mesh/ashore/internal/feed"
)

// Part is what one source supplies for a host.
type Part struct {
	Instances
	// Source is the name of the source.
	Source string
	// Used is the number of endpoints of the joined service that are from this part. Join sets it.
	Used int
}

// Joined is one service and the parts merged into it. Its endpoints are in the order of the parts.
type Joined struct {
	Instances
	// Parts is never empty. The first part sets the options of the service.
	Parts []Part

	hidden *Part // the registry's part, if the service hides it from other namespaces; else nil
}

// JoinConfig configures how the services that several sources supply for one host are joined.
type JoinConfig struct {
	// Shadow means that only the endpoints of the first part that has any are used. Otherwise the
	// endpoints of all parts are united.
	Shadow bool
	// ExportTo is the default of Service.ExportTo. Empty means "*".
	ExportTo []string
}

// Join returns the services of one host. parts are what the sources supply for it, in the order of
// the sources.
//
// Each namespace that declares the host gets a service. The parts of registries join the oldest
// declaration. If it is not exported to all, they also join the next one, and so on. If none is
// public, they also form a service of their own, unless a declaration has its namespace. Parts that
// another control plane relayed come after those of our registries.
//
// The first part of a service sets its options. The service has the ports of all parts. An endpoint
// serves only the ports of its part. See Service.takes for the endpoints that are not used.
func (c JoinConfig) Join(parts []Part) []Joined {
	declared, known := split(parts)
	var (
		out    []Joined
		public bool // all namespaces see a declaration
		own    = -1 // index of the declaration in the namespace of the registries
	)
	for _, group := range declared {
		first, all := group[0].Service, group
		if !public {
			all = append(all, known...)
		}
		out = append(out, c.join(all))
		public = public || c.public(first)
		if len(known) > 0 && first.Namespace == known[0].Service.Namespace {
			own = len(out) - 1
		}
	}
	switch {
	case len(known) == 0 || public:
	case own < 0:
		out = append(out, c.join(known))
	case c.public(known[0].Service):
		out[own].hidden = &known[0]
	}
	return out
}

// split returns the declarations by namespace, sorted by the oldest of each, and the parts of
// registries.
func split(parts []Part) (declared [][]Part, known []Part) {
	if len(parts) == 1 && !parts[0].Service.Declared {
		return nil, parts
	}
	var relayed []Part
	byNamespace := map[string][]Part{}
	for _, p := range parts {
		switch {
		case p.Service.Declared:
			byNamespace[p.Service.Namespace] = append(byNamespace[p.Service.Namespace], p)
		case p.Service.Relayed:
			relayed = append(relayed, p)
		default:
			known = append(known, p)
		}
	}
	declared = slices.SortedFunc(maps.Values(byNamespace), func(a, b []Part) int {
		s, o := a[0].Service, b[0].Service
		return cmp.Or(s.Created.Compare(o.Created), cmp.Compare(s.Namespace, o.Namespace))
	})
	return declared, append(known, relayed...)
}

// public reports whether all namespaces see the service.
func (c JoinConfig) public(s *Service) bool {
	to := s.ExportTo
	if len(to) == 0 {
		to = c.ExportTo
	}
	return len(to) == 0 || slices.Contains(to, "*")
}

// join joins parts to one service.
func (c JoinConfig) join(parts []Part) Joined {
	out := Joined{Instances: parts[0].Instances, Parts: slices.Clone(parts)}
	if len(parts) == 1 {
		out.Parts[0].Used = out.Endpoints.Len()
		return out
	}
	s := *out.Service
	s.Ports, s.OtherAddresses = unitedPorts(parts), otherAddresses(parts)
	if len(s.Ports) > len(out.Service.Ports) || s.OtherAddresses != nil {
		out.Service = &s
	}
	c.uniteEndpoints(&out)
	return out
}

// otherAddresses returns the virtual IPs in other clusters than that of the first part. Nil if there
// are none, or if those of the first part are valid everywhere.
func otherAddresses(parts []Part) (out map[string][]netip.Prefix) {
	first := parts[0].Service
	for _, p := range parts[1:] {
		s := p.Service
		_, known := out[s.Cluster]
		if first.Cluster == "" || s.Cluster == "" || s.Cluster == first.Cluster || len(s.Addresses) == 0 || known {
			continue
		}
		if out == nil {
			out = map[string][]netip.Prefix{}
		}
		out[s.Cluster] = s.Addresses
	}
	return out
}

// unitedPorts returns the ports of all parts, unique by number and name. Of two ports with one
// number it returns the first.
func unitedPorts(parts []Part) []Port {
	out := slices.Clip(parts[0].Service.Ports)
	for _, part := range parts[1:] {
		for _, p := range part.Service.Ports {
			if slices.ContainsFunc(out, func(q Port) bool { return q.Number == p.Number }) {
				continue
			}
			if slices.ContainsFunc(out, func(q Port) bool { return q.Name == p.Name }) {
				p.Name = fmt.Sprintf("%s-%d", p.Name, p.Number)
			}
			out = append(out, p)
		}
	}
	return out
}

// uniteEndpoints sets the endpoints of the service and Part.Used.
func (c JoinConfig) uniteEndpoints(j *Joined) {
	var used []usable
	for i := range j.Parts {
		p := &j.Parts[i]
		p.Used = 0
		if list := j.Service.takes(p.Instances); list.Len() > 0 && !(c.Shadow && len(used) > 0) {
			used = append(used, usable{p, list})
		}
	}
	if len(used) == 1 && slices.Equal(used[0].part.Service.Ports, j.Service.Ports) {
		j.Endpoints, used[0].part.Used = used[0].list, used[0].list.Len()
		return
	}
	u := union{ports: j.Service.Ports, by: map[place]*Part{}}
	for _, p := range used {
		before := len(u.endpoints)
		u.add(p)
		p.part.Used = len(u.endpoints) - before
	}
	j.Endpoints = &EndpointList{Items: u.endpoints}
}

// usable holds the endpoints of a part that the joined service can use.
type usable struct {
	part *Part
	list *EndpointList
}

// takes returns the endpoints of a part that the service can use. A STATIC service uses no names.
// A NONE or DYNAMIC_DNS service has none. A DNS_ROUND_ROBIN service uses no
// others, because Envoy takes exactly one name.
func (s *Service) takes(part Instances) *EndpointList {
	switch {
	case s.Resolution == part.Service.Resolution:
		return part.Endpoints
	case !s.Resolution.hasEndpoints(), s.Resolution == DNSRoundRobin, !part.Service.Resolution.hasEndpoints():
		return nil
	case s.Resolution == Static && slices.ContainsFunc(part.Endpoints.All(), Endpoint.HasName):
		return &EndpointList{Items: slices.DeleteFunc(slices.Clone(part.Endpoints.All()), Endpoint.HasName)}
	}
	return part.Endpoints
}

// unused says which endpoints of a part with another resolution are not used. Empty if all are.
func (s *Service) unused(part *Service) string {
	switch {
	case !s.Resolution.hasEndpoints(), s.Resolution == DNSRoundRobin, !part.Resolution.hasEndpoints():
		return "; its endpoints are not used"
	case s.Resolution == Static:
		return "; its endpoints with a name as address are not used"
	}
	return ""
}

// union collects the endpoints of several parts.
type union struct {
	ports     []Port // of the joined service
	endpoints []Endpoint
	by        map[place]*Part // the part that serves a port of the service at a place
}

// place is an address and port of a network, at which an endpoint serves a port of a service.
type place struct {
	network, address string
	port, number     uint32
}

// add adds the endpoints of a part, without the places that an earlier part serves.
func (u *union) add(from usable) {
	for _, e := range from.list.All() {
		if ports, serves := u.serve(from.part, &e); serves {
			e.Ports = ports
			u.endpoints = append(u.endpoints, e)
		}
	}
}

// serve returns Endpoint.Ports for the joined ports, and whether the endpoint serves any.
func (u *union) serve(part *Part, e *Endpoint) (ports map[string]uint32, serves bool) {
	for _, p := range u.ports {
		number := uint32(0)
		if port, ok := part.Service.Port(p.Number); ok {
			number = e.Port(port)
		}
		at := place{e.Network, e.Address, p.Number, number}
		if number != 0 && e.Address != "" && u.by[at] == nil {
			u.by[at] = part
		}
		if first := u.by[at]; first != nil && first != part {
			number = 0
		}
		serves = serves || number != 0
		if number == cmp.Or(p.TargetPort, p.Number) {
			continue // the default without an entry
		}
		if ports == nil {
			ports = map[string]uint32{}
		}
		ports[p.Name] = number
	}
	return ports, serves
}

// Problems returns the options of parts that are not used because the first part has others, and
// that the service hides one of a registry. It also returns the ports without endpoints because no
// part that has endpoints has the port.
func (j Joined) Problems() (out []feed.Problem) {
	first := j.Parts[0]
	for _, part := range j.Parts[1:] {
		for _, d := range Differences(first.Service, part.Service) {
			if d.Field == "resolution" {
				d.Text += first.Service.unused(part.Service)
			}
			out = append(out, part.problem(d.Field,
				"%s; %s of source %s is used: make the two agree, or remove the host from one of them",
				d.Text, first.title(), first.source()))
		}
	}
	if h := j.hidden; h != nil {
		out = append(out, first.problem("exportTo", "%s of source %s is in namespace %s too, so this hides it from "+
			"other namespaces: set namespace of the source, or export to *", h.title(), h.source(), h.Service.Namespace))
	}
	for _, part := range j.Parts {
		for _, p := range part.Service.Ports {
			if other := j.withoutPort(p); other != nil {
				out = append(out, part.problem("ports",
					"port %d has no endpoints: this source has none that can be used, and %s of source %s does not have the "+
						"port; use one port number in both, or add endpoints here",
					p.Number, other.title(), other.source()))
			}
		}
	}
	return out
}

// withoutPort returns a part with endpoints if no part with endpoints has port p, or else nil.
func (j Joined) withoutPort(p Port) (other *Part) {
	for i := range j.Parts {
		part := &j.Parts[i]
		if part.Used == 0 {
			continue
		}
		if _, has := part.Service.Port(p.Number); has {
			return nil
		}
		other = part
	}
	return other
}

// problem returns a warning about the part.
func (p Part) problem(field, format string, args ...any) feed.Problem {
	return feed.Problem{
		Severity: feed.Warning, Source: p.source(), Object: p.title(), Field: field, Text: fmt.Sprintf(format, args...),
	}
}

// source returns the name of the source that an operator edits.
func (p Part) source() string { return cmp.Or(p.Service.Source, p.Source) }

func (p Part) title() string { return cmp.Or(p.Service.Object, p.Service.Host) }

// Difference is an option that two declarations of a host set differently. Field is its path and
// Text says how it differs.
type Difference struct{ Field, Text string }

// Differences returns the options of other that contradict those of s.
func Differences(s, other *Service) (out []Difference) {
	add := func(field, format string, args ...any) {
		out = append(out, Difference{field, fmt.Sprintf(format, args...)})
	}
	if s.Resolution != other.Resolution {
		add("resolution", "is %s, not %s", other.Resolution, s.Resolution)
	}
	if s.External != other.External {
		add("location", "is %s, not %s", other.location(), s.location())
	}
	if s.Cluster == other.Cluster && len(s.Addresses) > 0 && len(other.Addresses) > 0 &&
		!slices.Equal(s.Addresses, other.Addresses) {
		add("addresses", "are %v, not %v", other.Addresses, s.Addresses)
	}
	for _, p := range other.Ports {
		if q, ok := s.Port(p.Number); ok && q.Protocol.Contradicts(p.Protocol) {
			add("ports", "port %d is %s, not %s", p.Number, p.Protocol, q.Protocol)
		}
	}
	return out
}

func (s *Service) location() string {
	if s.External {
		return "MESH_EXTERNAL"
	}
	return "MESH_INTERNAL"
}
