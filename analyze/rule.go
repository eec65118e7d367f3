package analyze

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
)

// rules checks that some client applies each DestinationRule, and that its ports and subsets exist.
func (a *analysis) rules() {
	for o := range a.objects(config.DestinationRule) {
		spec := o.Spec.(*networking.DestinationRule)
		clients := a.c.ExportedTo(o)
		if slices.Contains(clients, "") {
			clients = slices.DeleteFunc(slices.Clone(a.clients), func(ns string) bool {
				return ns == a.root() && !a.inhabited[ns] // what is written there is for other namespaces
			})
		}
		if len(clients) == 0 {
			continue // exported to nobody
		}
		host := config.ResolveHost(spec.Host, o.Namespace, a.in.Mesh.Domain)
		if a.applied(o, host, clients) {
			a.portSettings(o, spec, host)
			a.subsetLabels(o, spec, host)
		}
	}
}

// applied says whether some client applies a rule for host, and reports a rule that no client finds. Clients look in
// their own namespace, in that of the service and in the root namespace.
func (a *analysis) applied(o *config.Object, host string, clients []string) bool {
	const so = "the rule has no effect: its settings, also for TLS, are not applied"
	var seen *registry.Service
	var other *push.DestinationRule // what a client finds instead
	for _, s := range a.covered(host) {
		for _, client := range clients {
			looks := client == o.Namespace || s.Namespace == o.Namespace || o.Namespace == a.root()
			if seen != nil && !looks || a.c.ServiceFor(client, s.Host) != s {
				continue
			}
			if seen == nil {
				seen = s
			}
			if !looks {
				continue
			}
			r := a.c.RuleFor(client, s)
			if r != nil && slices.ContainsFunc(r.From, func(f *config.Object) bool { return f.Key == o.Key }) {
				return true
			}
			if other == nil {
				other, seen = r, s
			}
		}
	}
	switch {
	case other != nil && strings.HasPrefix(host, "*"): // a default for services to come
	case other != nil:
		a.report(UnusedRule, o, "spec.host",
			fmt.Sprintf("clients of %s find %s first, so %s", seen.Host, named(a.current(other.From[0])), so),
			"put the settings into that rule, or remove one of the two; a rule in the client's namespace "+
				"comes first, then one in the service's, "+
				"then one in the root namespace ("+a.root()+"), and in each the narrowest host")
	case seen != nil:
		a.report(UnusedRule, o, "spec.host",
			fmt.Sprintf("no client that sees the rule and the service %s looks for rules in namespace %s, so %s",
				seen.Host, o.Namespace, so),
			fmt.Sprintf("move the rule to the namespace of its clients, of the service (%s) or to the root "+
				"namespace (%s)", seen.Namespace, a.root()))
	default:
		a.missingHost(ReferenceNotFound, o, "spec.host", host, clients, so)
	}
	return false
}

// portSettings checks that some service of host has the ports that a rule has settings for.
func (a *analysis) portSettings(o *config.Object, spec *networking.DestinationRule, host string) {
	a.portsOf(o, "spec.trafficPolicy", spec.TrafficPolicy, host)
	for i, s := range spec.Subsets {
		a.portsOf(o, fmt.Sprintf("spec.subsets[%d].trafficPolicy", i), s.TrafficPolicy, host)
	}
}

func (a *analysis) portsOf(o *config.Object, path string, p *networking.TrafficPolicy, host string) {
	services := a.covered(host)
	for i, settings := range p.GetPortLevelSettings() {
		n := settings.GetPort().GetNumber()
		has := func(s *registry.Service) bool { _, ok := s.Port(n); return ok }
		if n == 0 || slices.ContainsFunc(services, has) {
			continue
		}
		a.report(ReferenceNotFound, o, fmt.Sprintf("%s.portLevelSettings[%d].port.number", path, i),
			fmt.Sprintf("no service of host %s has port %d, so these settings are not applied", host, n),
			fmt.Sprintf("use a port that exists (%s has %s), or declare the port",
				services[0].Host, portsText(services[0])))
	}
}

// subsetLabels checks that some endpoint has the labels of each subset. Services without endpoints are passed over.
func (a *analysis) subsetLabels(o *config.Object, spec *networking.DestinationRule, host string) {
	for i, s := range spec.Subsets {
		if len(s.Labels) == 0 {
			continue
		}
		if without := a.withoutLabels(s.Labels, host); without != nil {
			a.report(EmptySubset, o, fmt.Sprintf("spec.subsets[%d].labels", i),
				fmt.Sprintf("no endpoint of %s has %s, so what is routed to subset %s fails",
					without.Host, labelsText(s.Labels), s.Name),
				"correct the labels, or give them to the endpoints")
		}
	}
}

// withoutLabels is a service of host that has endpoints, none with these labels; nil when there is none, or when
// another one has such an endpoint.
func (a *analysis) withoutLabels(labels map[string]string, host string) (without *registry.Service) {
	for _, s := range a.covered(host) {
		list := a.in.Endpoints.At(s.Key)
		if list.Len() == 0 || s.Resolution == registry.Passthrough {
			continue
		}
		for i := range list.Items {
			if push.SelectsAll(labels, list.Items[i].Labels) {
				return nil
			}
		}
		if without == nil {
			without = s
		}
	}
	return without
}

// labelsText is a set of labels for people.
func labelsText(labels map[string]string) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		out = append(out, name+": "+labels[name])
	}
	if len(out) == 1 {
		return "the label " + out[0]
	}
	return "the labels " + strings.Join(out, ", ")
}

// ruleConflicts finds parts of rules for one host that are left out, because an older rule sets them. Rules of one
// namespace and host are merged: the first trafficPolicy counts, and of each subset the first one.
func (a *analysis) ruleConflicts() {
	type hostKey struct{ namespace, host string }
	groups := map[hostKey][]*config.Object{}
	for o := range a.objects(config.DestinationRule) {
		host := o.Spec.(*networking.DestinationRule).Host
		k := hostKey{o.Namespace, config.ResolveHost(host, o.Namespace, a.in.Mesh.Domain)}
		groups[k] = append(groups[k], o)
	}
	for k, list := range groups {
		slices.SortFunc(list, push.CompareAge)
		taken := map[string][]*config.Object{}
		claim := func(o *config.Object, part, field string) {
			for _, first := range taken[part] {
				if covers(a.c.ExportedTo(first), a.c.ExportedTo(o)) {
					a.report(ConflictingRules, o, field,
						fmt.Sprintf("has no effect, because %s for host %s comes first, by age or by name, "+
							"and has a %s already", named(first), k.host, part),
						"put the rules for that host into one object, or leave one of the two out")
					return
				}
			}
			taken[part] = append(taken[part], o)
		}
		for _, o := range list {
			spec := o.Spec.(*networking.DestinationRule)
			if spec.TrafficPolicy != nil {
				claim(o, "trafficPolicy", "spec.trafficPolicy")
			}
			for i, s := range spec.Subsets {
				claim(o, "subset "+s.Name, fmt.Sprintf("spec.subsets[%d]", i))
			}
		}
	}
}
