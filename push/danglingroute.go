package push

import (
	"fmt"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/nearest"
	"github.com/ashore-mesh/ashore/registry"
)

// virtualService checks where a VirtualService leads, and where it is reached.
func (d *dangling) virtualService(vs *VirtualService) {
	clients := d.routed(vs)
	if len(clients) == 0 {
		return // exported to nobody
	}
	d.boundGateways(vs)
	for at, to := range destinationsAt(vs.Spec) {
		d.destination(vs.Object.Key, clients, at, to)
	}
}

// routed lists the namespaces whose view of services decides where a VirtualService leads: one that sees the
// destination is enough. A VirtualService for everyone is for its own namespace and those of its Gateways, where
// their routers most likely are; in a namespace without services it is for others, whoever they are.
func (d *dangling) routed(vs *VirtualService) []string {
	own := vs.Object.Namespace
	to := exportTo(vs.Spec.ExportTo, d.context.in.Mesh.Config.GetDefaultVirtualServiceExportTo())
	if !slices.Contains(to, "*") || !d.inhabited[own] {
		return d.clients(to, own)
	}
	out := []string{own}
	for _, g := range vs.Spec.Gateways {
		if ns, _, ok := strings.Cut(g, "/"); ok && !slices.Contains(out, ns) {
			out = append(out, ns)
		}
	}
	return out
}

// callee is the service that a destination is to clients of one namespace.
type callee struct {
	client  string
	service *registry.Service
}

// hasPort says that the service has the port of a destination, if that names one.
func (c callee) hasPort(to *networking.Destination) bool {
	n := to.GetPort().GetNumber()
	_, ok := c.service.Port(n)
	return ok || n == 0
}

// destination checks one destination: some of clients must find its host, with its port, with its subset.
func (d *dangling) destination(key config.Key, clients []string, at destinationPlace, to *networking.Destination) {
	const so = "what is routed there fails"
	var found []callee
	for _, client := range clients {
		s := d.services.find(client, to.Host)
		if s == nil {
			continue
		}
		c := callee{client, s}
		if c.hasPort(to) && (to.Subset == "" || hasSubset(d.rules.find(client, s), to.Subset)) {
			return // which is so for the first, most often
		}
		found = append(found, c)
	}
	if len(found) == 0 {
		d.warn(key, at.String()+".host", "%s", d.missing(to.Host, clients, so))
		return
	}
	if !slices.ContainsFunc(found, func(c callee) bool { return c.hasPort(to) }) {
		d.warn(key, at.String()+".port.number", "service %s has no port %d, so %s: use one that it has (%s), or declare the port", to.Host, to.Port.Number, so, portsText(found[0].service))
	}
	if to.Subset != "" {
		d.subset(key, found, at, to, so)
	}
}

// subset checks that the rule which some client applies has the destination's subset.
func (d *dangling) subset(key config.Key, found []callee, at destinationPlace, to *networking.Destination, so string) {
	var rule *DestinationRule
	var clients []string
	for _, c := range found {
		r := d.rules.find(c.client, c.service)
		if hasSubset(r, to.Subset) {
			return
		}
		if rule == nil {
			rule = r
		}
		clients = append(clients, c.client)
	}
	field := at.String() + ".subset"
	if rule == nil {
		d.warn(key, field, "no DestinationRule for host %s holds in %s, and only such a rule has subsets, so %s: write one with subset %s, or leave the subset out",
			to.Host, namespacesText(clients), so, to.Subset)
		return
	}
	d.warn(key, field, "%s has no subset %s, so %s: %sdefine it there", rule.From[0].Key, to.Subset, so, otherSubsets(rule.Spec, to.Subset))
}

// hasSubset says that a rule, which may be nil, has a subset.
func hasSubset(rule *DestinationRule, name string) bool {
	return rule != nil && slices.ContainsFunc(rule.Spec.Subsets, func(s *networking.Subset) bool { return s.Name == name })
}

// otherSubsets proposes the subsets that there are, the one that is spelled alike first.
func otherSubsets(spec *networking.DestinationRule, unknown string) string {
	if len(spec.Subsets) == 0 {
		return ""
	}
	var names []string
	for _, s := range spec.Subsets {
		names = append(names, s.Name)
	}
	if near := nearest.Name(unknown, names); near != "" {
		names = slices.DeleteFunc(names, func(n string) bool { return n == near })
		names = slices.Insert(names, 0, near)
	}
	return "use one that it has (" + some(names) + "), or "
}

// portsText lists the ports of a service for people.
func portsText(s *registry.Service) string {
	var out []string
	for _, p := range s.Ports {
		text := fmt.Sprint(p.Number)
		if p.Name != "" {
			text += " " + p.Name
		}
		out = append(out, text)
	}
	return some(out)
}

// boundGateways checks that the Gateways of a VirtualService exist and admit its hosts.
func (d *dangling) boundGateways(vs *VirtualService) {
	admitted := map[string]bool{} // hosts that some Gateway admits
	all := true                   // every Gateway could be asked, and admits something
	for i, name := range vs.Spec.Gateways {
		if name == meshGateway {
			all = false // sidecars take every host
			continue
		}
		field := fmt.Sprintf("spec.gateways[%d]", i)
		namespace, short, _ := strings.Cut(name, "/")
		o, ok := d.context.gateways.byKey.Get(config.Key{Kind: config.Gateway, Namespace: namespace, Name: short})
		if !ok {
			all = false
			d.warn(vs.Object.Key, field, "there is no Gateway %s, so the hosts are not served there: write the name of one that exists%s, with its namespace before it, or declare it",
				name, d.nearGateways().hint(short, namespace))
			continue
		}
		none := true
		for _, h := range vs.Spec.Hosts {
			if d.admits(o).covers(vs.Object.Namespace, strings.ToLower(h)) {
				admitted[h], none = true, false
			}
		}
		if none {
			all = false
			d.warn(vs.Object.Key, field, "no server of %s admits %s from namespace %s, so nothing is served there: it admits %s; correct spec.hosts, or add the host to one of its servers",
				o.Key, some(vs.Spec.Hosts), vs.Object.Namespace, admittedText(o))
		}
	}
	for i, h := range vs.Spec.Hosts {
		if all && !admitted[h] {
			d.warn(vs.Object.Key, fmt.Sprintf("spec.hosts[%d]", i), "no server of %s admits %s from namespace %s, so it is not served: correct the host, or add it to one of the servers",
				some(vs.Spec.Gateways), h, vs.Object.Namespace)
		}
	}
}

// admits is what the servers of a Gateway admit, in lower case.
// Source: istio.io, Server.hosts: "ns/host", "." for the Gateway's own namespace, "*" or nothing for any.
func (d *dangling) admits(o *config.Object) imports {
	if known, ok := d.admitted[o.Key]; ok {
		return known
	}
	var patterns []string
	for _, s := range o.Spec.(*networking.Gateway).Servers {
		for _, h := range s.Hosts {
			if !strings.Contains(h, "/") {
				h = "*/" + h
			}
			patterns = append(patterns, strings.ToLower(h))
		}
	}
	known := parseImports(patterns, o.Namespace)
	d.admitted[o.Key] = known
	return known
}

// admittedText lists the hosts of a Gateway's servers as they are written, each once.
func admittedText(o *config.Object) string {
	var out []string
	seen := map[string]bool{}
	for _, s := range o.Spec.(*networking.Gateway).Servers {
		for _, h := range s.Hosts {
			if !seen[h] {
				seen[h] = true
				out = append(out, h)
			}
		}
	}
	return some(out)
}

// nearGateways knows all Gateways.
func (d *dangling) nearGateways() *nearby {
	if d.gateways == nil {
		d.gateways = newNearby(func(name, namespace string) string { return namespace + "/" + name })
		for k := range d.context.gateways.byKey.All() {
			d.gateways.add(k.Name, k.Namespace)
		}
	}
	return d.gateways
}
