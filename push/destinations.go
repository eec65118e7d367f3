package push

import (
	"fmt"
	"iter"

	networking "istio.io/api/networking/v1alpha3"
)

// destinationPlace is the field of a VirtualService that names a destination.
type destinationPlace struct {
	protocol string // "http", "tcp" or "tls"
	rule     int
	list     string // "route", "mirrors", or "mirror", which has no index
	index    int
}

// String returns the path of the field.
func (p destinationPlace) String() string {
	if p.list == "mirror" {
		return fmt.Sprintf("spec.%s[%d].mirror", p.protocol, p.rule)
	}
	return fmt.Sprintf("spec.%s[%d].%s[%d].destination", p.protocol, p.rule, p.list, p.index)
}

// destinationsOf yields every destination of a VirtualService.
func destinationsOf(spec *networking.VirtualService) iter.Seq[*networking.Destination] {
	return func(yield func(*networking.Destination) bool) {
		for _, d := range destinationsAt(spec) {
			if !yield(d) {
				return
			}
		}
	}
}

// destinationsAt yields every destination of a VirtualService, and its field.
func destinationsAt(spec *networking.VirtualService) iter.Seq2[destinationPlace, *networking.Destination] {
	return func(yield func(destinationPlace, *networking.Destination) bool) {
		each := func(p destinationPlace, d *networking.Destination) bool { return d == nil || yield(p, d) }
		for i, r := range spec.Http {
			for j, d := range r.Route {
				if !each(destinationPlace{"http", i, "route", j}, d.Destination) {
					return
				}
			}
			if !each(destinationPlace{"http", i, "mirror", 0}, r.Mirror) {
				return
			}
			for j, m := range r.Mirrors {
				if !each(destinationPlace{"http", i, "mirrors", j}, m.Destination) {
					return
				}
			}
		}
		for i, r := range spec.Tcp {
			for j, d := range r.Route {
				if !each(destinationPlace{"tcp", i, "route", j}, d.Destination) {
					return
				}
			}
		}
		for i, r := range spec.Tls {
			for j, d := range r.Route {
				if !each(destinationPlace{"tls", i, "route", j}, d.Destination) {
					return
				}
			}
		}
	}
}
