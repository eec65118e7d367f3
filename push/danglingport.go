package push

import (
	"fmt"
	"iter"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/registry"
)

// portSettings checks that what a DestinationRule says of single ports is about ports of services that it governs.
func (d *dangling) portSettings(o *config.Object, services iter.Seq[*registry.Service]) {
	spec := o.Spec.(*networking.DestinationRule)
	d.portsOf(o, "spec.trafficPolicy", spec.TrafficPolicy, services)
	for i, s := range spec.Subsets {
		d.portsOf(o, fmt.Sprintf("spec.subsets[%d].trafficPolicy", i), s.TrafficPolicy, services)
	}
}

// portsOf checks the ports of one policy, which stands at path: one service that has the port is enough.
func (d *dangling) portsOf(o *config.Object, path string, p *networking.TrafficPolicy, services iter.Seq[*registry.Service]) {
	for i, settings := range p.GetPortLevelSettings() {
		n := settings.GetPort().GetNumber()
		if n == 0 || hasPort(services, n) {
			continue
		}
		so := "these settings have no effect"
		if secures(settings.Tls) {
			so = "these settings have no effect and their TLS protects nothing"
		}
		field := fmt.Sprintf("%s.portLevelSettings[%d].port.number", path, i)
		s := first(services)
		if host := o.Spec.(*networking.DestinationRule).Host; strings.HasPrefix(host, "*") {
			d.warn(o.Key, field, "none of the services that %s covers has port %d, so %s: use a port that one of them has (%s has %s), or declare the port", host, n, so, s.Host, portsText(s))
			continue
		}
		d.warn(o.Key, field, "service %s has no port %d, so %s: use one that it has (%s), or declare the port", s.Host, n, so, portsText(s))
	}
}

// hasPort says whether one of services has port n.
func hasPort(services iter.Seq[*registry.Service], n uint32) bool {
	for s := range services {
		if _, ok := s.Port(n); ok {
			return true
		}
	}
	return false
}
