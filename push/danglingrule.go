package push

import (
	"iter"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/registry"
)

// rule checks that some service is governed by a DestinationRule: one of its host, for a client that sees both and
// looks for rules in its namespace.
func (d *dangling) rule(k ruleKey, o *config.Object) {
	clients := d.clients(d.rules.exportTo(o), k.Namespace)
	if len(clients) == 0 {
		return // exported to nobody
	}
	seen, governs := d.governed(k, clients)
	so := "the rule has no effect"
	if originatesTLS(o.Spec.(*networking.DestinationRule)) {
		so += " and its TLS settings protect nothing"
	}
	switch {
	case governs:
		d.portSettings(o, d.takers(k, clients))
	case seen != nil:
		d.warn(o.Key, "spec.host", "clients look for rules in their own namespace, in that of the service (%s) and in the root namespace (%s), and those that see this one, of %s, find it in none of the three, so %s: move it to one of them",
			seen.Namespace, d.rules.root(), namespacesText(clients), so)
	default:
		d.warn(o.Key, "spec.host", "%s", d.missing(k.Host, clients, so))
	}
}

// governed finds a service of a rule's host that some of clients sees, and says whether one of those takes the rule.
func (d *dangling) governed(k ruleKey, clients []string) (seen *registry.Service, governs bool) {
	for s := range d.candidates(k.Host) {
		for _, client := range clients {
			if !d.services.sees(client, s) {
				continue
			}
			if d.looks(client, k.Namespace, s) {
				return s, true
			}
			seen = s
		}
	}
	return seen, false
}

// takers yields the services of a rule's host for which some of clients takes the rule.
func (d *dangling) takers(k ruleKey, clients []string) iter.Seq[*registry.Service] {
	return func(yield func(*registry.Service) bool) {
		for s := range d.candidates(k.Host) {
			takes := func(client string) bool { return d.looks(client, k.Namespace, s) && d.services.find(client, s.Host) == s }
			if slices.ContainsFunc(clients, takes) && !yield(s) {
				return
			}
		}
	}
}

// looks says whether a client looks in namespace for rules for s.
func (d *dangling) looks(client, namespace string, s *registry.Service) bool {
	return client == namespace || s.Namespace == namespace || namespace == d.rules.root()
}

// candidates yields the services that a rule for host, which may be a wildcard, may govern.
func (d *dangling) candidates(host string) iter.Seq[*registry.Service] {
	if strings.HasPrefix(host, "*") {
		return d.covered(host)
	}
	return d.services.of(host)
}

// covered yields the services that a rule for the wildcard pattern may govern.
func (d *dangling) covered(pattern string) iter.Seq[*registry.Service] {
	return func(yield func(*registry.Service) bool) {
		for _, s := range d.context.in.Services.All() {
			if ruleCovers(pattern, s.Host) && !yield(s) {
				return
			}
		}
	}
}

// ruleCovers says whether a rule for the wildcard pattern may govern host.
func ruleCovers(pattern, host string) bool {
	if !strings.HasSuffix(host, pattern[1:]) {
		return false
	}
	for p := host; p != ""; p = widen(p) {
		if p == pattern {
			return true
		}
	}
	return false
}

// originatesTLS says whether a rule asks clients for TLS.
func originatesTLS(spec *networking.DestinationRule) bool {
	policies := []*networking.TrafficPolicy{spec.TrafficPolicy}
	for _, s := range spec.Subsets {
		policies = append(policies, s.TrafficPolicy)
	}
	return slices.ContainsFunc(policies, func(p *networking.TrafficPolicy) bool {
		return secures(p.GetTls()) || slices.ContainsFunc(p.GetPortLevelSettings(), func(port *networking.TrafficPolicy_PortTrafficPolicy) bool {
			return secures(port.Tls)
		})
	})
}

// secures says whether settings ask for TLS.
func secures(s *networking.ClientTLSSettings) bool {
	return s != nil && s.Mode != networking.ClientTLSSettings_DISABLE
}
