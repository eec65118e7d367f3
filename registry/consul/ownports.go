package consul

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/ashore-mesh/ashore/registry"
)

// named is the port of that name, as an instance declares it; nil: it has none.
func (in *instance) named(name string) *port {
	return in.port(func(p port) bool { return p.name == name })
}

func (in *instance) port(is func(port) bool) *port {
	if i := slices.IndexFunc(in.ports, is); i >= 0 {
		return &in.ports[i]
	}
	return nil
}

// serves is the port of an instance by which it serves one of the service: the one of its name, else of its number. Where one of the two is
// a registered port, which metadata may name or not, it is also the one where the instance listens as the service says. nil: it has
// none, whatever listens there is none of the service's.
func (in *instance) serves(s registry.Port, registered bool) *port {
	if p := in.named(s.Name); p != nil {
		return p
	}
	if p := in.port(func(p port) bool { return p.number == s.Number }); p != nil {
		return p
	}
	return in.port(func(p port) bool { return (p.main || registered) && p.target == cmp.Or(s.TargetPort, s.Number) })
}

// mainOf is the name of the service's port that its instances are registered with; empty: there is none.
func mainOf(list []instance) string {
	for i := range list {
		if p := list[i].ports[0]; p.main {
			return p.name
		}
	}
	return ""
}

// ownPorts are the numbers of an instance's ports that are not the service's, by the names of those; zero: it does not have
// that port, which is told. nil: all are the service's. main is the name of the one that instances are registered with.
func (c *converter) ownPorts(in *instance, ports []registry.Port, main string) map[string]uint32 {
	var out map[string]uint32
	var lacking []string
	for _, s := range ports {
		target, p := uint32(0), in.serves(s, s.Name == main)
		if p != nil {
			target = p.target
		} else {
			lacking = append(lacking, fmt.Sprintf("%d (%s)", s.Number, s.Name))
		}
		if target == cmp.Or(s.TargetPort, s.Number) {
			continue
		}
		if out == nil {
			out = map[string]uint32{}
		}
		out[s.Name] = target
	}
	if len(lacking) > 0 {
		c.warn(in.id, "does not have port %s, which other instances of the service have: it is left out of it; say in its metadata by %sNAME where it listens, or take the port from the others",
			strings.Join(lacking, ", port "), keyPortPrefix)
	}
	return out
}
