package consul

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/ashore-mesh/ashore/registry"
)

// port returns the first port for which is returns true; nil if the instance has none.
func (in *instance) port(is func(port) bool) *port {
	if i := slices.IndexFunc(in.ports, is); i >= 0 {
		return &in.ports[i]
	}
	return nil
}

// serves returns the port of an instance for a port of the service: the one with its name, else
// with its number. If either is a port of the registration, a port with the same target also
// serves. nil if the instance has none.
func (in *instance) serves(s registry.Port, registered bool) *port {
	if p := in.port(func(p port) bool { return p.name == s.Name }); p != nil {
		return p
	}
	if p := in.port(func(p port) bool { return p.number == s.Number }); p != nil {
		return p
	}
	return in.port(func(p port) bool { return (p.main || registered) && p.target == cmp.Or(s.TargetPort, s.Number) })
}

// ownPorts returns the target ports of an instance that differ from those of the service, by name.
// A target is zero if the instance lacks the port. registered is the name of the port of the
// registrations.
func (c *converter) ownPorts(in *instance, ports []registry.Port, registered string) map[string]uint32 {
	var out map[string]uint32
	var lacking []string
	for _, s := range ports {
		target, p := uint32(0), in.serves(s, s.Name == registered)
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
		c.warn(in.ep.Workload, "lacks port %s, which other instances of the service have, and gets no traffic for it: "+
			"write %sNAME into its metadata, or remove the port from the others",
			strings.Join(lacking, ", port "), keyPortPrefix)
	}
	return out
}
