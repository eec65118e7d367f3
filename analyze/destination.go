package analyze

import (
	"fmt"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
)

// routeFails is what happens to requests to a destination that does not exist.
const routeFails = "requests that are routed there fail"

// virtualServices checks the destinations and the Gateways of VirtualServices.
func (a *analysis) virtualServices() {
	for vs := range a.c.VirtualServices() {
		if a.stopped() {
			return
		}
		clients := a.routeClients(vs)
		if len(clients) == 0 {
			continue // exported to no namespace
		}
		a.boundGateways(vs)
		for at, to := range vs.Destinations() {
			a.destination(vs.Object, clients, at, to)
		}
	}
}

// routeClients returns the namespaces from which the destinations of a VirtualService are looked up. It is enough if
// one of them finds the destination. A VirtualService that is exported to all namespaces is looked up from its own and
// those of its Gateways, or from all namespaces if its own has no workloads.
func (a *analysis) routeClients(vs *push.VirtualService) []string {
	to, namespace := a.c.ExportedTo(vs.Object), vs.Object.Namespace
	if !slices.Contains(to, "") {
		return to
	}
	if !a.hasWorkloads[namespace] {
		return a.clients
	}
	out := []string{namespace}
	for _, g := range vs.Spec.Gateways {
		if ns, _, ok := strings.Cut(g, "/"); ok && !slices.Contains(out, ns) {
			out = append(out, ns)
		}
	}
	return out
}

// visibleService is the service of a host that clients of one namespace see.
type visibleService struct {
	client  string
	service *registry.Service
}

// destination checks that some of the clients find the host, the port and the subset of a destination.
func (a *analysis) destination(o *config.Object, clients []string, at string, to *networking.Destination) {
	number := to.GetPort().GetNumber()
	var found []visibleService
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
		found = append(found, visibleService{client, s})
	}
	if len(found) == 0 {
		a.missingHost(o, at+".host", to.Host, clients, routeFails)
		return
	}
	if !portKnown {
		a.report(ReferenceNotFound, o, at+".port.number",
			fmt.Sprintf("service %s has no port %d, so %s", to.Host, number, routeFails),
			fmt.Sprintf("use one of its ports (%s), or declare the port", portsText(found[0].service)))
	}
	if to.Subset != "" {
		a.subset(o, found, at+".subset", to)
	}
}

// subset checks that a rule which one of the clients applies has the destination's subset.
func (a *analysis) subset(o *config.Object, found []visibleService, field string, to *networking.Destination) {
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
				to.Subset, to.Host, namespacesText(clients), routeFails),
			fmt.Sprintf("write a DestinationRule with subset %s, or leave the subset out", to.Subset))
		return
	}
	remedy := "define the subset there"
	if names := subsetNames(rule.Spec); len(names) > 0 {
		remedy = "use one of its subsets (" + few(names) + "), or " + remedy
	}
	a.report(ReferenceNotFound, o, field,
		fmt.Sprintf("%s has no subset %s, so %s", rule.From[0].Key, to.Subset, routeFails), remedy)
}

// hasSubset reports whether a rule, which may be nil, has a subset.
func hasSubset(rule *push.DestinationRule, name string) bool {
	return rule != nil && slices.Contains(subsetNames(rule.Spec), name)
}

func subsetNames(rule *networking.DestinationRule) (names []string) {
	for _, s := range rule.Subsets {
		names = append(names, s.Name)
	}
	return names
}

// missingHost reports that none of the clients sees a service of the host. A registry may supply it later.
func (a *analysis) missingHost(o *config.Object, field, host string, clients []string, consequence string) {
	text, remedy, fromRegistry := "no service has host "+host, "use a host that exists, or declare the service", true
	if hidden := a.serviceOf(host); hidden != nil {
		text = fmt.Sprintf("service %s of namespace %s is not exported to %s",
			host, hidden.Namespace, namespacesText(clients))
		remedy, fromRegistry = "extend the exportTo of the service", false
	} else if wide := a.wildcardOf(host); wide != nil {
		text = fmt.Sprintf("no service has host %s, only %s covers it", host, wide.Host)
		remedy, fromRegistry = "declare a service with exactly this host", false
	}
	a.report(ReferenceNotFound, o, field, text+", so "+consequence, remedy).fromRegistry = fromRegistry
}

// serviceOf returns a service of exactly that host, visible or not. It returns nil if there is none.
func (a *analysis) serviceOf(host string) *registry.Service {
	for k, s := range a.in.Services.From(registry.Key{Host: host}) {
		if k.Host == host {
			return s
		}
		break
	}
	return nil
}

// wildcardOf returns a service with a wildcard host that covers host. It returns nil if there is none.
func (a *analysis) wildcardOf(host string) *registry.Service {
	for p := push.WiderHost(host); p != ""; p = push.WiderHost(p) {
		if s := a.serviceOf(p); s != nil {
			return s
		}
	}
	return nil
}

// portsText lists the ports of a service: "80 http, 9090 grpc".
func portsText(s *registry.Service) string {
	var out []string
	for _, p := range s.Ports {
		out = append(out, strings.TrimSpace(fmt.Sprintf("%d %s", p.Number, p.Name)))
	}
	return few(out)
}

// namespacesText returns "namespace shop" or "the namespaces shop, web".
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
