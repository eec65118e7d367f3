package consul

import (
	"cmp"
	"fmt"
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
	number   uint32 // at which clients reach the service; zero if it is not declared
	target   uint32 // at which the instance listens
	main     bool   // the port of the registration; the instance has no other
	protocol registry.Protocol
}

// mainName is the name of the port of the registration when its protocol is not known.
const mainName = "main"

// portsOf returns the ports of an instance: from its metadata, else its named ports, else the
// registered port.
func (c *converter) portsOf(s *api.AgentService, labels map[string]string, main uint32) []port {
	out := c.metaPorts(s)
	if len(out) == 0 {
		out = c.namedPorts(s)
	}
	declared := cmp.Or(s.Meta[keyProtocol], labels["protocol"])
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
			out[i].protocol = registry.ProtocolByName(out[i].name)
		}
		if out[i].protocol == registry.Unknown {
			out[i].protocol = protocol
		}
	}
	return out
}

// servicePort returns the port of the service in the metadata. Zero if it has none.
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

// metaPorts returns the ports in the metadata: ashore-port-http: "8080", or "80:8080" if the port
// of the service differs from that of the instance.
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

// namedPorts returns the ports of a multi-port registration.
func (c *converter) namedPorts(s *api.AgentService) []port {
	var out []port
	for _, p := range s.Ports {
		name := strings.ToLower(p.Name)
		if p.Port < 1 || p.Port > 65535 || !dnsname.ValidLabel(name) {
			c.warn(s.ID, "its port %q (%d) is left out: want a name of letters, digits and '-', and 1 to 65535", p.Name,
				p.Port)
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

// ports returns the ports of a service: all that its instances declare. Where they differ, the
// oldest instance decides.
func (c *converter) ports(list []instance) (out []registry.Port) {
	byAge := slices.Clone(list) // byAge[i].ports aliases list[i].ports; the loop sets names and numbers in both.
	slices.SortStableFunc(byAge, func(a, b instance) int { return cmp.Compare(a.created, b.created) })
	registered, number := c.registeredPort(byAge)
	for i := range byAge {
		if p := &byAge[i].ports[0]; p.main {
			p.name, p.number = registered, cmp.Or(p.number, number)
		}
		for _, p := range byAge[i].ports {
			add := registry.Port{Number: p.number, Name: p.name, Protocol: p.protocol}
			at := slices.IndexFunc(out, func(o registry.Port) bool { return o.Name == p.name || o.Number == p.number })
			if at < 0 {
				if p.target != p.number {
					add.TargetPort = p.target
				}
				out = append(out, add)
				continue
			}
			if add.TargetPort = out[at].TargetPort; add != out[at] {
				c.warn(byAge[i].ep.Workload,
					"declares port %s, and the service has port %s: the oldest instance decides",
					describePort(add), describePort(out[at]))
			}
		}
	}
	return out
}

// ownPorts returns the instance ports that differ from the service's target ports, by service port
// name. It matches ports by name, then by number. Zero means that the instance lacks the port.
func (c *converter) ownPorts(in *instance, ports []registry.Port) (out map[string]uint32) {
	for _, s := range ports {
		i := slices.IndexFunc(in.ports, func(p port) bool { return p.name == s.Name })
		if i < 0 {
			i = slices.IndexFunc(in.ports, func(p port) bool { return p.number == s.Number })
		}
		target := uint32(0)
		if i >= 0 {
			target = in.ports[i].target
		} else {
			c.warn(in.ep.Workload, "lacks port %d (%s), which other instances of the service have, and gets no traffic for it: "+
				"write %s%s into its metadata, or remove the port from the others", s.Number, s.Name, keyPortPrefix, s.Name)
		}
		if target != cmp.Or(s.TargetPort, s.Number) {
			if out == nil {
				out = map[string]uint32{}
			}
			out[s.Name] = target
		}
	}
	return out
}

func describePort(p registry.Port) string {
	return fmt.Sprintf("%d (%s, protocol %s)", p.Number, p.Name, strings.ToLower(p.Protocol.String()))
}

// anyPort is the service port when instances use different ports, such as dynamic ports, and none
// is declared.
const anyPort = 80

// registeredPort returns the service port for instances that have only a registered port. The
// number is, in this order: the one declared by the oldest instance; servicePort; the port of at
// least half of the instances (the oldest wins a tie); dynamicPort.
func (c *converter) registeredPort(byAge []instance) (name string, number uint32) {
	var targets []uint32
	count := map[uint32]int{}
	for i := range byAge {
		if p := byAge[i].ports[0]; p.main {
			name, number = cmp.Or(name, p.name), cmp.Or(number, p.number)
			targets = append(targets, p.target)
			count[p.target]++
		}
	}
	number = cmp.Or(number, c.o.ServicePort)
	if number != 0 || len(targets) == 0 {
		return name, number
	}
	best := targets[0]
	for _, t := range targets {
		if count[t] > count[best] {
			best = t
		}
	}
	if 2*count[best] > len(targets) {
		return name, best
	}
	if 2*count[best] < len(targets) {
		best = anyPort
	}
	c.warn("", "its instances have different ports, so clients reach it at port %d: "+
		"write %s into its metadata, or servicePort into the settings", best, keyPort)
	return name, best
}
