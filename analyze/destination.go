package analyze

import (
	"fmt"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
)

// routeFails is what happens to requests to a destination that does not exist.
const routeFails = "requests that are routed there fail"

// virtualServices checks the destinations and the Gateways of VirtualServices.
func (a *analysis) virtualServices() {
	defer a.unusedDelegates()
	for vs := range a.c.VirtualServices() {
		if a.stopped() {
			return
		}
		clients := a.routeClients(vs)
		if len(clients) == 0 {
			continue // exported to no namespace
		}
		a.boundGateways(vs)
		a.delegates(vs)
		for at, to := range vs.Destinations() {
			a.destination(at.Object, clients, at.Path, to)
		}
	}
}

// unusedDelegates reports the VirtualServices without hosts to which no other one delegates.
func (a *analysis) unusedDelegates() {
	used := map[config.Key]bool{}
	for vs := range a.c.VirtualServices() {
		for _, d := range vs.Delegates {
			used[d.Object.Key] = true
		}
	}
	for o := range a.objects(config.VirtualService) {
		if len(o.Spec.(*networking.VirtualService).Hosts) == 0 && !used[o.Key] {
			a.report(UnusedDelegate, o, "spec.hosts", "no effect, because there are no hosts and no other VirtualService "+
				"delegates to it", "write hosts, or name it as delegate in a route of another VirtualService")
		}
	}
}

// delegates checks the VirtualServices to which vs delegates routes.
func (a *analysis) delegates(vs *push.VirtualService) {
	for _, bad := range a.c.BadDelegates(vs) {
		text, remedy := "there is no %s without hosts", "declare it, or write the routes here"
		if bad.Exists {
			text, remedy = "%s is not exported to this namespace", "extend its exportTo"
		}
		a.report(ReferenceNotFound, vs.Object, bad.Path+".delegate",
			fmt.Sprintf(text+", so the route has no effect", bad.Key), remedy)
	}
	for _, f := range vs.Contradicting {
		a.report(ConflictingRoutes, f.Object, f.Path, fmt.Sprintf("no effect for %s, because no request fulfils "+
			"both this match and that of the route that delegates", named(a.current(vs.Object))),
			"match the same as that route, or less")
	}
}

// routeClients returns the namespaces from which the destinations of a VirtualService are looked
// up. It is enough if one of them finds the destination. A VirtualService that is exported to all
// namespaces is looked up from its own and those of its Gateways, or from all namespaces if its own
// has no workloads.
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

// destination checks that one of the clients finds the host of a destination, with its port and its
// subset.
func (a *analysis) destination(o *config.Object, clients []string, at string, to *networking.Destination) {
	number := to.GetPort().GetNumber()
	var service *registry.Service
	var rule *push.DestinationRule
	portFound, subsetFound := false, false
	for _, client := range clients {
		s := a.c.ServiceFor(client, to.Host)
		if s == nil {
			continue
		}
		r := a.c.RuleFor(client, s)
		_, hasPort := s.Port(number)
		hasPort = hasPort || number == 0
		hasSubset := to.Subset == "" || r != nil && slices.Contains(subsetNames(r), to.Subset)
		if hasPort && hasSubset {
			return
		}
		portFound, subsetFound = portFound || hasPort, subsetFound || hasSubset
		if service == nil || rule == nil {
			service, rule = s, r
		}
	}
	if service == nil {
		a.missingHost(o, at+".host", to.Host, clients, routeFails)
		return
	}
	if !portFound {
		a.report(ReferenceNotFound, o, at+".port.number",
			fmt.Sprintf("service %s has no port %d, so %s", to.Host, number, routeFails),
			fmt.Sprintf("use one of its ports (%s), or declare the port", portsText(service)))
	}
	switch {
	case subsetFound:
	case rule == nil:
		a.report(ReferenceNotFound, o, at+".subset",
			fmt.Sprintf("subset %s is unknown, because no DestinationRule for host %s applies in %s, so %s",
				to.Subset, to.Host, namespacesText(clients), routeFails),
			fmt.Sprintf("write a DestinationRule with subset %s, or leave the subset out", to.Subset))
	default:
		remedy := "define the subset there"
		if names := subsetNames(rule); len(names) > 0 {
			remedy = "use one of its subsets (" + few(names) + "), or " + remedy
		}
		a.report(ReferenceNotFound, o, at+".subset",
			fmt.Sprintf("%s has no subset %s, so %s", rule.From[0].Key, to.Subset, routeFails), remedy)
	}
}

func subsetNames(rule *push.DestinationRule) (names []string) {
	for _, s := range rule.Spec.Subsets {
		names = append(names, s.Name)
	}
	return names
}

// missingHost reports that none of the clients sees a service of the host.
func (a *analysis) missingHost(o *config.Object, field, host string, clients []string, consequence string) {
	report := func(text, remedy string) *Finding {
		return a.report(ReferenceNotFound, o, field, text+", so "+consequence, remedy)
	}
	for k, s := range a.in.Services.From(registry.Key{Host: host}) {
		if k.Host == host {
			report(fmt.Sprintf("service %s of namespace %s is not exported to %s", host, s.Namespace, namespacesText(clients)),
				"extend the exportTo of the service")
			return
		}
		break
	}
	hint := a.similarHost(host, o.Namespace)
	f := report("no service has host "+host, "use a host that exists"+hint+", or declare the service")
	f.offline = Info // a registry may have the service
	if hint != "" {
		f.offline = feed.Warning
	}
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
