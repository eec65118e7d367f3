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
	number   uint32 // at which clients reach the service; zero: not declared
	target   uint32 // at which the instance listens
	main     bool   // the port of the registration; the instance has no other
	protocol registry.Protocol
}

// mainName is the name of the port of the registration when its protocol is not known.
const mainName = "main"

// portsOf returns the ports of an instance: those of its metadata, else Consul's named ports, else the one of the
// registration, main.
func (c *converter) portsOf(s *api.AgentService, labels map[string]string, main uint32) []port {
	out := c.metaPorts(s)
	if len(out) == 0 {
		out = c.namedPorts(s)
	}
	declared := cmp.Or(s.Meta[keyProtocol], s.Meta["protocol"], labels["protocol"])
	protocol, known := registry.ParseProtocol(cmp.Or(declared, c.o.Protocol))
	if declared != "" && !known {
		c.warn(s.ID, "the protocol %q is unknown, so proxies detect it: use http, http2, grpc, tcp or another of Istio's",
			declared)
	}
	if len(out) == 0 && main > 0 && main <= 65535 {
		name := mainName
		if known {
			name = strings.ToLower(cmp.Or(declared, c.o.Protocol))
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

// byName returns the protocol that the name of a port begins with, as in http-web.
// Source: istio.io, "Protocol selection".
func byName(name string) registry.Protocol {
	if strings.HasPrefix(name, "grpc-web") {
		return registry.GRPCWeb
	}
	prefix, _, _ := strings.Cut(name, "-")
	p, _ := registry.ParseProtocol(prefix)
	return p
}

// servicePort returns the port of the service by metadata; zero: it has none.
func (c *converter) servicePort(s *api.AgentService) uint32 {
	text, ok := s.Meta[keyPort]
	if !ok {
		return 0
	}
	n, ok := portNumber(text)
	if !ok {
		c.warn(s.ID, "%s %q is not a port and is ignored: want 1 to 65535", keyPort, text)
	}
	return n
}

// metaPorts returns the ports of the metadata, by name: ashore-port-http: "8080", or "80:8080" where the port of the
// service differs from that of the instance.
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
			c.warn(s.ID, "%s %q is not a port and is ignored: want PORT, or PORT:PORT OF THE INSTANCE", k, s.Meta[k])
			continue
		}
		out = append(out, port{name: name, number: number, target: target})
	}
	return out
}

// namedPorts returns the ports of a registration with several.
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

// ports returns the ports of a service: all that its instances declare. Where they differ, the oldest instance decides.
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
		for _, p := range byAge[i].ports { // shares its ports with list
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

// differs reports an instance that declares a port otherwise than the oldest.
func (c *converter) differs(id string, have registry.Port, p port, number uint32) {
	switch {
	case have.Number != number:
		c.warn(id, "declares port %s as %d, and an older instance as %d, which is used", p.name, number, have.Number)
	case have.Protocol != p.protocol:
		c.warn(id, "declares another protocol for port %s than an older instance, whose protocol is used", p.name)
	}
}

// renames reports an instance that has another name for a port of the service than the oldest.
func (c *converter) renames(in *instance, p port, have registry.Port) {
	if in.named(have.Name) != nil {
		c.warn(in.id, "its port %s is left out: %d is the port %s of the service", p.name, have.Number, have.Name)
		return
	}
	c.warn(in.id, "names port %d %s, and an older instance names it %s, which is used", have.Number, p.name, have.Name)
}

// unify returns one name and one number for the registered ports of all instances: those that the oldest declares,
// else the setting, else the number that most of them have.
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

// anyPort is the port of a service whose instances have different ports and declare none, as with dynamic ports.
const anyPort = 80

// mainPort returns the port at which clients reach a service: the declared one, or the one that most instances have.
// count has the number of instances by port. In a rolling change of the port, the former stays until most have left it.
func (c *converter) mainPort(count map[uint32]int, declared uint32) uint32 {
	if declared != 0 {
		return declared
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
	c.warn("", "its instances have different ports, so clients reach it at port %d: "+
		"write %s into its metadata, or servicePort into the settings", out, keyPort)
	return out
}
