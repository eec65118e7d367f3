package consul

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/consul/api"

	"github.com/ashore-mesh/ashore/internal/dnsname"
	"github.com/ashore-mesh/ashore/registry"
)

// port is one port as one instance declares it.
type port struct {
	name     string
	number   uint32 // at which clients reach the service; zero: it is not said
	target   uint32 // at which the instance listens
	main     bool   // the one that the instance is registered with; it has no other
	protocol registry.Protocol
}

// mainName is the name of the port of an instance that has but one, when its protocol is not known.
const mainName = "main"

// portsOf are the ports of an instance: those that its metadata names, else Consul's named ports, else the one that it is
// registered with, which is main.
func (c *converter) portsOf(s *api.AgentService, labels map[string]string, main uint32) []port {
	out := c.metaPorts(s)
	if len(out) == 0 {
		out = c.namedPorts(s)
	}
	said := cmp.Or(s.Meta[keyProtocol], s.Meta["protocol"], labels["protocol"])
	protocol, known := registry.ParseProtocol(cmp.Or(said, c.o.Protocol))
	if said != "" && !known {
		c.warn(s.ID, "%q is no protocol that the mesh knows: proxies find out what it speaks; want http, http2, grpc, tcp, tls or another of Istio's", said)
	}
	if len(out) == 0 && main > 0 && main <= 65535 {
		name := mainName
		if known {
			name = strings.ToLower(cmp.Or(said, c.o.Protocol))
		}
		out = []port{{name: name, number: c.servicePort(s), target: main, main: true, protocol: protocol}}
	}
	for i := range out {
		if out[i].protocol == registry.Unknown {
			out[i].protocol = byName(out[i].name)
		}
		if out[i].protocol == registry.Unknown {
			out[i].protocol = protocol
		}
	}
	return out
}

// byName is the protocol that a port's name begins with, as http-web does. Source: istio.io, "Protocol selection".
func byName(name string) registry.Protocol {
	if strings.HasPrefix(name, "grpc-web") {
		return registry.GRPCWeb
	}
	prefix, _, _ := strings.Cut(name, "-")
	p, _ := registry.ParseProtocol(prefix)
	return p
}

// servicePort is the number at which metadata says that clients reach the service.
func (c *converter) servicePort(s *api.AgentService) uint32 {
	text, said := s.Meta[keyPort]
	if !said {
		return 0
	}
	n, ok := portNumber(text)
	if !ok {
		c.warn(s.ID, "%s %q is no port: it is left out; want 1 to 65535", keyPort, text)
	}
	return n
}

// metaPorts are those that metadata names: ashore-port-http: "8080", or "80:8080" where the service's port is another than
// the instance's. In the order of their names.
func (c *converter) metaPorts(s *api.AgentService) []port {
	var out []port
	for _, k := range slices.Sorted(maps.Keys(s.Meta)) {
		name, ok := strings.CutPrefix(k, keyPortPrefix)
		if !ok {
			continue
		}
		first, second, two := strings.Cut(s.Meta[k], ":")
		number, ok1 := portNumber(first)
		target, ok2 := number, true
		if two {
			target, ok2 = portNumber(second)
		}
		if name = strings.ToLower(name); !ok1 || !ok2 || !dnsname.ValidLabel(name) {
			c.warn(s.ID, "%s %q is no port: it is left out; want PORT, or PORT:PORT OF THE INSTANCE", k, s.Meta[k])
			continue
		}
		out = append(out, port{name: name, number: number, target: target})
	}
	return out
}

// namedPorts are those of a registration with several ports.
func (c *converter) namedPorts(s *api.AgentService) []port {
	var out []port
	for _, p := range s.Ports {
		name := strings.ToLower(p.Name)
		if p.Port < 1 || p.Port > 65535 || !dnsname.ValidLabel(name) {
			c.warn(s.ID, "its port %q (%d) is left out: want a name of letters, digits and '-', and 1 to 65535", p.Name, p.Port)
			continue
		}
		out = append(out, port{name: name, number: uint32(p.Port), target: uint32(p.Port)})
	}
	slices.SortStableFunc(out, func(a, b port) int { return cmp.Compare(a.name, b.name) })
	return slices.CompactFunc(out, func(a, b port) bool { return a.name == b.name })
}

func portNumber(s string) (uint32, bool) {
	n, err := strconv.ParseUint(strings.TrimSpace(s), 10, 16)
	return uint32(n), err == nil && n > 0
}

// ports are those of a service: all that its instances declare, by name. Where they differ the oldest instance counts.
func (c *converter) ports(list []instance) []registry.Port {
	byAge := slices.Clone(list)
	slices.SortStableFunc(byAge, func(a, b instance) int { return cmp.Compare(a.created, b.created) })
	name, main := c.unify(byAge)
	for i := range list {
		if p := &list[i].ports[0]; p.main {
			p.name, p.number = name, cmp.Or(p.number, main)
		}
	}
	var out []registry.Port
	for i := range byAge {
		for _, p := range byAge[i].ports { // of which those of list are the same
			number := p.number
			at := slices.IndexFunc(out, func(o registry.Port) bool { return o.Name == p.name })
			if at >= 0 {
				c.differs(byAge[i].id, out[at], p, number)
				continue
			}
			if other := slices.IndexFunc(out, func(o registry.Port) bool { return o.Number == number }); other >= 0 {
				c.renames(&byAge[i], p, out[other])
				continue
			}
			add := registry.Port{Number: number, Name: p.name, Protocol: p.protocol}
			if p.target != number {
				add.TargetPort = p.target
			}
			out = append(out, add)
		}
	}
	return out
}

// differs tells of an instance that says something else of a port than the one that counts.
func (c *converter) differs(id string, have registry.Port, p port, number uint32) {
	switch {
	case have.Number != number:
		c.warn(id, "says that clients reach port %s at %d, and an older instance says %d, which counts", p.name, number, have.Number)
	case have.Protocol != p.protocol:
		c.warn(id, "says another protocol of port %s than an older instance, which counts", p.name)
	}
}

// renames tells of an instance by whose word a port of the service has another name than the one that counts.
func (c *converter) renames(in *instance, p port, have registry.Port) {
	if in.named(have.Name) != nil {
		c.warn(in.id, "its port %s is left out: %d is the port %s of the service", p.name, have.Number, have.Name)
		return
	}
	c.warn(in.id, "calls port %d of the service %s, and an older instance %s, which counts", have.Number, p.name, have.Name)
}

// unify gives the registered ports of all instances one name and one number: what the oldest says that says something, else
// the setting, else what most of them have.
func (c *converter) unify(byAge []instance) (name string, number uint32) {
	count := map[uint32]int{}
	for i := range byAge {
		if p := byAge[i].ports[0]; p.main {
			name, number = cmp.Or(name, p.name), cmp.Or(number, p.number)
			count[p.target]++
		}
	}
	if len(count) == 0 {
		return "", 0
	}
	c.out.main = c.mainPort(count, cmp.Or(number, c.o.ServicePort))
	return name, c.out.main
}

// anyPort is that of a service whose instances each have another, as dynamic ports are, and that does not say.
const anyPort = 80

// mainPort is the port at which clients reach a service whose instances have these ports: the one that is said, or that
// most of them have. While they move from one to another, half of them may have each: the former stays until most have left it.
func (c *converter) mainPort(count map[uint32]int, said uint32) uint32 {
	if said != 0 {
		return said
	}
	all, best := 0, uint32(0)
	for _, number := range slices.Sorted(maps.Keys(count)) {
		all += count[number]
		if count[number] > count[best] {
			best = number
		}
	}
	if 2*count[best] > all {
		return best
	}
	out := uint32(anyPort)
	if c.former != 0 && 2*count[c.former] == all {
		out = c.former
	}
	c.warn("", "its instances have different ports, so that clients reach it at port %d: say %s in its metadata, or servicePort in the settings", out, keyPort)
	return out
}
