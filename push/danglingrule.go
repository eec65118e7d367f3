package push

import (
	"iter"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/registry"
)

// rule checks that some service is governed by a DestinationRule: one of its host, for a client that sees both, looks
// for rules in its namespace, and finds none that comes before it.
func (d *dangling) rule(k ruleKey, o *config.Object) {
	clients := d.clients(d.rules.exportTo(o), k.Namespace)
	if len(clients) == 0 {
		return // exported to nobody
	}
	clients = d.withoutEmptyRoot(clients)
	seen, before, governs := d.governed(k, o, clients)
	so := "the rule has no effect"
	secures := originatesTLS(o.Spec.(*networking.DestinationRule))
	if secures {
		so += " and its TLS settings protect nothing"
	}
	switch {
	case governs:
		services := d.takers(k, o, clients)
		d.portSettings(o, services)
		d.subsetLabels(o, services)
	case before != nil && !secures && strings.HasPrefix(k.Host, "*"):
		// a default for services that are yet to come
	case before != nil:
		other := d.context.in.Objects.At(before.From[0].Key)
		d.warn(o.Key, "spec.host", "whoever looks for a rule of %s finds %s (%s) before it, so %s: put the settings into that one, or remove one of the two; "+
			"a rule in the client's namespace comes first, then one in that of the service, then one in the root namespace (%s), and in each that with the narrowest host",
			seen.Host, other.Key, placeIn(other), so, d.rules.root())
	case seen != nil:
		d.warn(o.Key, "spec.host", "clients look for rules in their own namespace, in that of the service (%s) and in the root namespace (%s), and those that see this one, of %s, find it in none of the three, so %s: move it to one of them",
			seen.Namespace, d.rules.root(), namespacesText(clients), so)
	default:
		d.warn(o.Key, "spec.host", "%s", d.missing(k.Host, clients, so))
	}
}

// withoutEmptyRoot leaves the root namespace out of those of all clients when nothing runs there: what is written
// there is for others.
func (d *dangling) withoutEmptyRoot(clients []string) []string {
	root := d.rules.root()
	if !slices.Contains(clients, "") || root == "" || d.inhabited[root] || d.hasGateways(root) {
		return clients
	}
	return slices.DeleteFunc(slices.Clone(clients), func(c string) bool { return c == root })
}

// hasGateways says whether there are Gateways in a namespace, and so most likely routers.
func (d *dangling) hasGateways(namespace string) bool {
	for k := range d.context.gateways.byKey.From(config.Key{Kind: config.Gateway, Namespace: namespace}) {
		return k.Namespace == namespace
	}
	return false
}

// governed finds a service of a rule's host that is the one of its host for some of clients, and says whether one of
// those takes the rule; before is what they take instead, where they do look in its namespace.
func (d *dangling) governed(k ruleKey, o *config.Object, clients []string) (seen *registry.Service, before *DestinationRule, governs bool) {
	for s := range d.candidates(k.Host) {
		for _, client := range clients {
			looks := d.looks(client, k.Namespace, s)
			if before != nil && !looks || d.services.find(client, s.Host) != s {
				continue
			}
			if before == nil {
				seen = s
			}
			if !looks {
				continue
			}
			r := d.rules.find(client, s)
			if slices.Contains(r.From, o) {
				return s, nil, true
			}
			if before == nil {
				before = r
			}
		}
	}
	return seen, before, false
}

// takers yields the services of a rule's host to which some of clients applies the rule.
func (d *dangling) takers(k ruleKey, o *config.Object, clients []string) iter.Seq[*registry.Service] {
	return func(yield func(*registry.Service) bool) {
		for s := range d.candidates(k.Host) {
			takes := func(client string) bool {
				return d.looks(client, k.Namespace, s) && d.services.find(client, s.Host) == s && slices.Contains(d.rules.find(client, s).From, o)
			}
			if slices.ContainsFunc(clients, takes) && !yield(s) {
				return
			}
		}
	}
}

// looks says whether a client looks in namespace for rules for s; it finds one then, if there is one that it sees.
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
