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
	case seen != nil:
		d.warn(o.Key, "spec.host", "clients look for rules in their own namespace, in that of the service (%s) and in the root namespace (%s), and those that see this one, of %s, find it in none of the three, so %s: move it to one of them",
			seen.Namespace, d.rules.root(), namespacesText(clients), so)
	default:
		d.warn(o.Key, "spec.host", "%s", d.missing(k.Host, clients, so))
	}
}

// governed finds a service of a rule's host that some of clients sees, and says whether one of those takes the rule.
func (d *dangling) governed(k ruleKey, clients []string) (seen *registry.Service, governs bool) {
	candidates := d.services.of(k.Host)
	if strings.HasPrefix(k.Host, "*") {
		candidates = d.covered(k.Host)
	}
	for s := range candidates {
		for _, client := range clients {
			if !d.services.sees(client, s) {
				continue
			}
			if client == k.Namespace || s.Namespace == k.Namespace || k.Namespace == d.rules.root() {
				return s, true
			}
			seen = s
		}
	}
	return seen, false
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
	secures := func(s *networking.ClientTLSSettings) bool {
		return s != nil && s.Mode != networking.ClientTLSSettings_DISABLE
	}
	return slices.ContainsFunc(policies, func(p *networking.TrafficPolicy) bool {
		return secures(p.GetTls()) || slices.ContainsFunc(p.GetPortLevelSettings(), func(port *networking.TrafficPolicy_PortTrafficPolicy) bool {
			return secures(port.Tls)
		})
	})
}
