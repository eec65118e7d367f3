package registry

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// adaption has the endpoints of one declaration take part in a service with the ports of another. They were found by the ports
// of their own, and listen nowhere else.
type adaption struct {
	to   []Port
	from []*Port // of the own declaration, for each of to; nil: it has no such port
}

// adaptionOf finds for each port to of the service the one of an own declaration: that of its name, else of its number, else the
// one where workloads listen at the same number. Where both have one port alone, they mean the same.
func adaptionOf(own, to []Port) adaption {
	a := adaption{to: to, from: make([]*Port, len(to))}
	find := func(i int, same func(Port) bool) {
		if at := slices.IndexFunc(own, same); at >= 0 && a.from[i] == nil {
			a.from[i] = &own[at]
		}
	}
	for i, t := range to {
		find(i, func(p Port) bool { return p.Name == t.Name })
		find(i, func(p Port) bool { return p.Number == t.Number })
		find(i, func(p Port) bool { return p.target() == t.target() })
		find(i, func(Port) bool { return len(own) == 1 && len(to) == 1 })
	}
	return a
}

// filledOf finds for the ports that are filled in those of an own declaration, by name or number. Endpoints whose declaration has no such
// port know nothing of it, and are left as they are: taken to listen at its number.
func filledOf(own, more []Port) adaption {
	var a adaption
	for _, t := range more {
		if at := slices.IndexFunc(own, func(p Port) bool { return p.Name == t.Name || p.Number == t.Number }); at >= 0 {
			a.to, a.from = append(a.to, t), append(a.from, &own[at])
		}
	}
	return a
}

// target is where workloads listen that do not say.
func (p Port) target() uint32 { return cmp.Or(p.TargetPort, p.Number) }

// adapt returns the endpoints with their numbers for the ports of the service, and those of the ports that some of them do not
// have. What needs no change stays the same list.
func (a adaption) adapt(list []Endpoint) (out []Endpoint, lacking []Port) {
	shared, lacks := a.ports(nil) // of all endpoints that name no port
	for i := range list {
		e := &list[i]
		if e.socket() {
			continue // it has no ports
		}
		ports, without := shared, lacks
		if len(e.Ports) > 0 {
			ports, without = a.ports(e.Ports)
		}
		for _, p := range without {
			if !slices.Contains(lacking, p) {
				lacking = append(lacking, p)
			}
		}
		if len(ports) == len(e.Ports) {
			continue // nothing was added
		}
		if out == nil {
			out = slices.Clone(list)
		}
		out[i].Ports = ports
	}
	if out == nil {
		out = list
	}
	return out, lacking
}

// ports are the numbers of an endpoint by the names of the service's ports, of its numbers by the names of its own; and those of
// the service that it does not have. What it says itself of a name counts.
func (a adaption) ports(own map[string]uint32) (out map[string]uint32, lacking []Port) {
	out = own
	e := Endpoint{Ports: own}
	for i, t := range a.to {
		if _, said := own[t.Name]; said {
			continue
		}
		number := uint32(0)
		if a.from[i] != nil {
			number = e.Port(*a.from[i])
		} else {
			lacking = append(lacking, t)
		}
		if number == t.target() {
			continue // as endpoints have that do not say
		}
		if len(out) == len(own) {
			if out = maps.Clone(own); out == nil {
				out = map[string]uint32{}
			}
		}
		out[t.Name] = number
	}
	return out, lacking
}

// listening are the endpoints that have at least one of the ports, and sockets. The others get no traffic: they do not count, nor stand
// in the way of those that would.
func listening(list []Endpoint, ports []Port) []Endpoint {
	out := make([]Endpoint, 0, len(list))
	for i := range list {
		e := &list[i]
		if e.socket() || slices.ContainsFunc(ports, func(p Port) bool { return e.Port(p) != 0 }) {
			out = append(out, *e)
		}
	}
	return out
}

// socket says that the endpoint is a Unix socket, which has no ports.
func (e *Endpoint) socket() bool { return strings.HasPrefix(e.Address, "unix://") }

// lackingPorts is that endpoints of other do not have these ports of the service.
func lackingPorts(counts, other *Service, lacking []Port) Conflict {
	return Conflict{Counts: counts, Other: other, Field: "ports", Text: fmt.Sprintf(
		"its endpoints are left out of %s: it has %s, by no such name or number; where the same is meant, give it one name or one number in both", portList(lacking), portList(other.Ports))}
}

// portList is a list of ports for people.
func portList(ports []Port) string {
	out := make([]string, len(ports))
	for i, p := range ports {
		out[i] = fmt.Sprintf("port %d (%s)", p.Number, p.Name)
	}
	return strings.Join(out, ", ")
}
