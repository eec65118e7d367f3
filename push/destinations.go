package push

import (
	"fmt"
	"iter"

	networking "istio.io/api/networking/v1alpha3"
)

// destinationField locates a destination in a VirtualService.
type destinationField struct {
	protocol string // "http", "tcp" or "tls"
	rule     int
	name     string // "route", "mirror" or "mirrors"
	index    int    // zero for "mirror"
}

// String returns the path of the field.
func (p destinationField) String() string {
	if p.name == "mirror" {
		return fmt.Sprintf("spec.%s[%d].mirror", p.protocol, p.rule)
	}
	return fmt.Sprintf("spec.%s[%d].%s[%d].destination", p.protocol, p.rule, p.name, p.index)
}

// destinations yields every destination of a VirtualService.
func destinations(spec *networking.VirtualService) iter.Seq[*networking.Destination] {
	return func(yield func(*networking.Destination) bool) {
		for _, d := range destinationFields(spec) {
			if !yield(d) {
				return
			}
		}
	}
}

// destinationFields yields every destination of a VirtualService with its field.
func destinationFields(spec *networking.VirtualService) iter.Seq2[destinationField, *networking.Destination] {
	return func(yield func(destinationField, *networking.Destination) bool) {
		// emit skips fields that are not set.
		emit := func(p destinationField, d *networking.Destination) bool { return d == nil || yield(p, d) }
		for i, r := range spec.Http {
			for j, d := range r.Route {
				if !emit(destinationField{"http", i, "route", j}, d.Destination) {
					return
				}
			}
			if !emit(destinationField{"http", i, "mirror", 0}, r.Mirror) {
				return
			}
			for j, m := range r.Mirrors {
				if !emit(destinationField{"http", i, "mirrors", j}, m.Destination) {
					return
				}
			}
		}
		for i, r := range spec.Tcp {
			for j, d := range r.Route {
				if !emit(destinationField{"tcp", i, "route", j}, d.Destination) {
					return
				}
			}
		}
		for i, r := range spec.Tls {
			for j, d := range r.Route {
				if !emit(destinationField{"tls", i, "route", j}, d.Destination) {
					return
				}
			}
		}
	}
}
