package analyze

import (
	"fmt"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/nearest"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
)

// virtualServices checks where VirtualServices lead, and whether their Gateways serve them.
func (a *analysis) virtualServices() {
	for vs := range a.c.VirtualServices() {
		if a.stopped() {
			return
		}
		clients := a.routeClients(vs)
		if len(clients) == 0 {
			continue // exported to nobody
		}
		a.boundGateways(vs)
		for at, to := range vs.Destinations() {
			a.destination(vs.Object, clients, at, to)
		}
	}
}

// routeClients are the namespaces from which a VirtualService's destinations are looked up; one that finds them is
// enough. A VirtualService for everyone is for its own namespace and those of its Gateways, or, when its namespace has
// neither services nor Gateways, for all.
func (a *analysis) routeClients(vs *push.VirtualService) []string {
	to, own := a.c.ExportedTo(vs.Object), vs.Object.Namespace
	if !slices.Contains(to, "") {
		return to
	}
	if !a.inhabited[own] {
		return a.clients
	}
	out := []string{own}
	for _, g := range vs.Spec.Gateways {
		if ns, _, ok := strings.Cut(g, "/"); ok && !slices.Contains(out, ns) {
			out = append(out, ns)
		}
	}
	return out
}

// seenService is the service that a host is to clients of one namespace.
type seenService struct {
	client  string
	service *registry.Service
}

// destination checks one destination: some of clients must find its host, with its port and its subset.
func (a *analysis) destination(o *config.Object, clients []string, at string, to *networking.Destination) {
	const so = "what is routed there fails"
	number := to.GetPort().GetNumber()
	var found []seenService
	portKnown := number == 0
	for _, client := range clients {
		s := a.c.ServiceFor(client, to.Host)
		if s == nil {
			continue
		}
		_, has := s.Port(number)
		portKnown = portKnown || has
		if (has || number == 0) && (to.Subset == "" || hasSubset(a.c.RuleFor(client, s), to.Subset)) {
			return
		}
		found = append(found, seenService{client, s})
	}
	if len(found) == 0 {
		a.missingHost(ReferenceNotFound, o, at+".host", to.Host, clients, so)
		return
	}
	if !portKnown {
		a.report(ReferenceNotFound, o, at+".port.number",
			fmt.Sprintf("service %s has no port %d, so %s", to.Host, number, so),
			fmt.Sprintf("use one of its ports (%s), or declare the port", portsText(found[0].service)))
	}
	if to.Subset != "" {
		a.subset(o, found, at+".subset", to, so)
	}
}

// subset checks that the rule which some client applies has the destination's subset.
func (a *analysis) subset(o *config.Object, found []seenService, field string, to *networking.Destination, so string) {
	var rule *push.DestinationRule
	var clients []string
	for _, f := range found {
		r := a.c.RuleFor(f.client, f.service)
		if hasSubset(r, to.Subset) {
			return
		}
		if rule == nil {
			rule = r
		}
		clients = append(clients, f.client)
	}
	if rule == nil {
		a.report(ReferenceNotFound, o, field,
			fmt.Sprintf("subset %s is unknown, because no DestinationRule for host %s applies in %s, so %s",
				to.Subset, to.Host, namespacesText(clients), so),
			fmt.Sprintf("write a DestinationRule with subset %s, or leave the subset out", to.Subset))
		return
	}
	a.report(ReferenceNotFound, o, field, fmt.Sprintf("%s has no subset %s, so %s", rule.From[0].Key, to.Subset, so),
		otherSubsets(rule.Spec, to.Subset)+"define it there")
}

// hasSubset says that a rule, which may be nil, has a subset.
func hasSubset(rule *push.DestinationRule, name string) bool {
	is := func(s *networking.Subset) bool { return s.Name == name }
	return rule != nil && slices.ContainsFunc(rule.Spec.Subsets, is)
}

// otherSubsets proposes the subsets that there are, the most similar first.
func otherSubsets(spec *networking.DestinationRule, unknown string) string {
	var all []string
	for _, s := range spec.Subsets {
		all = append(all, s.Name)
	}
	if len(all) == 0 {
		return ""
	}
	if near := nearest.Name(unknown, all); near != "" {
		all = slices.DeleteFunc(all, func(n string) bool { return n == near })
		all = slices.Insert(all, 0, near)
	}
	return "use one of its subsets (" + few(all) + "), or "
}

// missingHost reports that none of clients sees a service of host. Services that registries supply may come later.
func (a *analysis) missingHost(code Code, o *config.Object, field, host string, clients []string, so string) {
	var text, remedy string
	registry := false
	switch hidden, wide := a.serviceOf(host), a.wildcardOf(host); {
	case hidden != nil:
		text = fmt.Sprintf("service %s of namespace %s is not exported to %s",
			host, hidden.Namespace, namespacesText(clients))
		remedy = "extend the exportTo of the service"
	case wide != nil:
		text = fmt.Sprintf("no service has host %s, only %s covers it", host, wide.Host)
		remedy = "declare a service with exactly this host"
	default:
		text, registry = "no service has host "+host, true
		remedy = "use a host that exists" + a.similarHost(host) + ", or declare the service"
	}
	a.report(code, o, field, text+", so "+so, remedy).registry = registry
}

// serviceOf is some service of exactly that host, whoever sees it; nil when there is none.
func (a *analysis) serviceOf(host string) *registry.Service {
	for k, s := range a.in.Services.From(registry.Key{Host: host}) {
		if k.Host == host {
			return s
		}
		break
	}
	return nil
}

// wildcardOf is a service with a wildcard host that covers host; nil when there is none.
func (a *analysis) wildcardOf(host string) *registry.Service {
	for p := push.WiderHost(host); p != ""; p = push.WiderHost(p) {
		if s := a.serviceOf(p); s != nil {
			return s
		}
	}
	return nil
}

// portsText lists the ports of a service for people.
func portsText(s *registry.Service) string {
	var out []string
	for _, p := range s.Ports {
		out = append(out, strings.TrimSpace(fmt.Sprintf("%d %s", p.Number, p.Name)))
	}
	return few(out)
}

// namespacesText lists namespaces for people.
func namespacesText(list []string) string {
	switch {
	case slices.Contains(list, ""):
		return "any namespace"
	case len(list) == 1:
		return "namespace " + list[0]
	default:
		return "the namespaces " + few(list)
	}
}
