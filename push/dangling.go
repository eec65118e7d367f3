package push

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/registry"
)

// Dangling tells of references in VirtualServices, DestinationRules and Sidecars that lead nowhere: to a host, port
// or subset that nobody declares, to a Gateway that does not exist or does not admit the hosts; and of what nobody
// gets: rules, Sidecars and routes of Gateways that others come before, routes that their Gateway has no server for,
// settings for ports and subsets that no service has; of policies that select nobody, or are about ports where nobody
// listens; and of services without endpoints. All are warnings: what is missing may be on its way from another source. They stand in the order of the checks, and in each in that of the objects or, for Gateways, of the ports.
//
// They are looked for anew in each call, with the look-ups that decide what proxies are sent; building a context
// costs nothing for it.
func (c *Context) Dangling() []feed.Problem {
	d := newDangling(c)
	for _, vs := range c.virtual.byKey.All() {
		d.virtualService(vs)
		d.routeKinds(vs)
	}
	for k, o := range c.rules.byHost.All() {
		d.rule(k, o)
	}
	for _, sc := range c.sidecars.byKey.All() {
		d.egressListeners(sc)
	}
	for _, o := range c.authorization.byKey.All() {
		d.provider(o)
	}
	d.selectors()
	d.policyPorts()
	d.externalWorkloads()
	d.emptyServices()
	d.sidecarObjects()
	d.sharedGateways()
	return d.problems
}

// dangling collects what leads nowhere.
type dangling struct {
	context  *Context
	services *serviceView
	rules    *ruleView
	// all stand for every namespace: "", and those that see something which others do not.
	all []string
	// inhabited are the namespaces that have services.
	inhabited map[string]bool
	// admitted is by Gateway what its servers admit.
	admitted map[config.Key]imports
	// byPort are the services by each port that they have; made when the first Sidecar asks.
	byPort map[uint32][]*registry.Service
	// hosts and gateways are made when the first is missing.
	hosts, gateways *nearby

	problems []feed.Problem
}

func newDangling(c *Context) *dangling {
	d := &dangling{context: c, services: c.held.services(), rules: c.held.rules(), inhabited: map[string]bool{}, admitted: map[config.Key]imports{}}
	for k := range c.in.Services.All() {
		d.inhabited[k.Namespace] = true
	}
	all := map[string]bool{"": true}
	maps.Copy(all, d.services.special)
	for ns := range d.rules.perNamespace {
		all[ns] = true
	}
	d.all = slices.Sorted(maps.Keys(all))
	return d
}

// warn adds a warning about an object, which the indexes may know by an older place in its file.
func (d *dangling) warn(key config.Key, field, format string, args ...any) {
	origin := d.context.in.Objects.At(key).Origin
	d.problems = append(d.problems, feed.Problem{
		Severity: feed.Warning, Source: origin.Source, Object: key.String(), Field: field, File: origin.File, Line: origin.Line,
		Text: fmt.Sprintf(format, args...),
	})
}

// clients lists the namespaces of clients that an object of namespace from is exported to.
func (d *dangling) clients(to []string, from string) []string {
	if slices.Contains(to, "*") {
		return d.all
	}
	return audience(to, from)
}

// missing says why none of clients sees a service of host, and what to do, with so in between.
func (d *dangling) missing(host string, clients []string, so string) string {
	if s := first(d.services.of(host)); s != nil {
		return fmt.Sprintf("%s of namespace %s is not exported to %s, so %s: extend the exportTo of the service", host, s.Namespace, namespacesText(clients), so)
	}
	for p := widen(host); p != ""; p = widen(p) {
		if s := first(d.services.of(p)); s != nil {
			return fmt.Sprintf("no service has host %s itself, only %s covers it, so %s: declare a service of exactly this host", host, s.Host, so)
		}
	}
	return fmt.Sprintf("no service has host %s, so %s: write one that exists%s, or declare the service", host, so, d.nearHosts().hint(splitHost(host)))
}

// first is the first service of a list, nil when there is none.
func first(services iter.Seq[*registry.Service]) (out *registry.Service) {
	services(func(s *registry.Service) bool {
		out = s
		return false
	})
	return out
}

// nearHosts knows all hosts.
func (d *dangling) nearHosts() *nearby {
	if d.hosts != nil {
		return d.hosts
	}
	d.hosts = newNearby(func(first, rest string) string { return strings.TrimSuffix(first+"."+rest, ".") })
	var last registry.Key
	for k := range d.context.in.Services.All() {
		if k.Host != last.Host {
			d.hosts.add(splitHost(k.Host))
		}
		last = k
	}
	return d.hosts
}

func splitHost(host string) (first, rest string) {
	first, rest, _ = strings.Cut(host, ".")
	return first, rest
}

// namespacesText is a list of namespaces for people.
func namespacesText(list []string) string {
	switch {
	case slices.Contains(list, ""):
		return "any namespace"
	case len(list) == 1:
		return "namespace " + list[0]
	default:
		return "the namespaces " + some(list)
	}
}

// some is a list for people, cut off where it gets long.
func some(list []string) string {
	const most = 5
	if len(list) <= most {
		return strings.Join(list, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(list[:most], ", "), len(list)-most)
}
