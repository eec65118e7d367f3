package analyze

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
)

// rules checks that a client applies each DestinationRule, and that its ports and subsets exist.
func (a *analysis) rules() {
	for o := range a.objects(config.DestinationRule) {
		spec := o.Spec.(*networking.DestinationRule)
		clients := a.c.ExportedTo(o)
		if slices.Contains(clients, "") {
			clients = slices.DeleteFunc(slices.Clone(a.clients), func(ns string) bool {
				return ns == a.root() && !a.hasWorkloads[ns] // its rules are for other namespaces
			})
		}
		if len(clients) == 0 {
			continue // exported to no namespace
		}
		host := config.ResolveHost(spec.Host, o.Namespace, a.in.Mesh.Domain)
		use := a.useOf(o, host, clients)
		if !use.applied {
			a.reportUnused(o, host, clients, use)
			continue
		}
		a.checkPolicy(o, "spec.trafficPolicy", spec.TrafficPolicy, host, nil)
		for i, s := range spec.Subsets {
			a.checkPolicy(o, fmt.Sprintf("spec.subsets[%d].trafficPolicy", i), s.TrafficPolicy, host, s.Labels)
		}
		a.subsetLabels(o, spec, host)
	}
}

// ruleUse is how clients use a DestinationRule.
type ruleUse struct {
	applied bool                  // a client applies the rule to a service
	service *registry.Service     // a service of the host that a client sees; nil: none
	instead *push.DestinationRule // the rule that a client applies to service instead; nil: none
}

// useOf returns how clients use a rule for host. A client searches for rules in its own namespace,
// in that of the service, and in the root namespace.
func (a *analysis) useOf(o *config.Object, host string, clients []string) (use ruleUse) {
	from := func(f *config.Object) bool { return f.Key == o.Key }
	for _, s := range a.covered(host) {
		for _, client := range clients {
			if a.stopped() {
				return ruleUse{applied: true} // nothing to report
			}
			searches := client == o.Namespace || s.Namespace == o.Namespace || o.Namespace == a.root()
			if use.service != nil && !searches || a.c.ServiceFor(client, s.Host) != s {
				continue
			}
			if use.service == nil {
				use.service = s
			}
			if !searches {
				continue
			}
			r := a.c.RuleFor(client, s)
			if r != nil && slices.ContainsFunc(r.From, from) {
				return ruleUse{applied: true}
			}
			if use.instead == nil {
				use.instead, use.service = r, s
			}
		}
	}
	return use
}

// reportUnused reports a rule that no client applies. A rule for a wildcard may be the default of
// services to come.
func (a *analysis) reportUnused(o *config.Object, host string, clients []string, use ruleUse) {
	const noEffect = "the rule has no effect: its settings, including TLS, are not applied"
	switch {
	case use.instead != nil && strings.HasPrefix(host, "*"):
	case use.instead != nil:
		a.report(UnusedRule, o, "spec.host",
			fmt.Sprintf("clients of %s apply %s, so %s", use.service.Host, named(a.current(use.instead.From[0])),
				noEffect),
			fmt.Sprintf("merge the settings into that rule, or delete one of them. Precedence: client namespace, "+
				"service namespace, root namespace (%s); then the most specific host", a.root()))
	case use.service != nil:
		a.report(UnusedRule, o, "spec.host",
			fmt.Sprintf("no client that sees the rule and the service %s searches for rules in namespace %s, so %s",
				use.service.Host, o.Namespace, noEffect),
			fmt.Sprintf("move the rule to the namespace of its clients, of the service (%s) or to the root "+
				"namespace (%s)", use.service.Namespace, a.root()))
	default:
		a.missingHost(o, "spec.host", host, clients, noEffect)
	}
}

// checkPolicy checks that a service of host has each port that a policy has settings for, and that
// plaintext is accepted where the policy disables TLS. labels select the endpoints of a subset.
func (a *analysis) checkPolicy(
	o *config.Object, path string, p *networking.TrafficPolicy, host string, labels map[string]string,
) {
	services := a.covered(host)
	if len(services) == 0 {
		return
	}
	var ownTLS []uint32 // ports with their own TLS settings
	for i, settings := range p.GetPortLevelSettings() {
		n := settings.GetPort().GetNumber()
		if settings.Tls != nil {
			ownTLS = append(ownTLS, n)
			a.checkPlaintext(o, fmt.Sprintf("%s.portLevelSettings[%d].tls.mode", path, i), settings.Tls, services, labels,
				func(port uint32) bool { return port == n })
		}
		has := func(s *registry.Service) bool { _, ok := s.Port(n); return ok }
		if n == 0 || slices.ContainsFunc(services, has) {
			continue
		}
		a.report(ReferenceNotFound, o, fmt.Sprintf("%s.portLevelSettings[%d].port.number", path, i),
			fmt.Sprintf("no service of host %s has port %d, so these settings are not applied", host, n),
			fmt.Sprintf("use a port that exists (%s has %s), or declare the port",
				services[0].Host, portsText(services[0])))
	}
	a.checkPlaintext(o, path+".tls.mode", p.GetTls(), services, labels,
		func(port uint32) bool { return !slices.Contains(ownTLS, port) })
}

// checkPlaintext reports TLS settings with the mode DISABLE for ports at which a workload accepts
// only mutual TLS. The settings apply to some service ports, and to endpoints with these labels.
func (a *analysis) checkPlaintext(
	o *config.Object, path string, tls *networking.ClientTLSSettings, services []*registry.Service,
	labels map[string]string, applies func(port uint32) bool,
) {
	if tls == nil || tls.GetMode() != networking.ClientTLSSettings_DISABLE {
		return
	}
	for _, s := range services {
		list := a.in.Endpoints.At(s.Key)
		for i := range list.Len() {
			ep := &list.Items[i]
			for _, port := range s.Ports {
				if a.stopped() {
					return
				}
				if !applies(port.Number) || ep.TLSMode != registry.TLSModeIstio || !registry.SelectsAll(labels, ep.Labels) {
					continue
				}
				mode, by := a.c.PeerModeOf(ep, ep.Port(port))
				if mode != push.PeerStrict {
					continue
				}
				a.report(PlaintextToMesh, o, path,
					fmt.Sprintf("clients send plaintext to port %d of %s, but %s is STRICT for workload %s, which refuses it",
						port.Number, s.Host, named(by), cmp.Or(ep.Workload, ep.Address)),
					"use tls mode ISTIO_MUTUAL, or remove tls to have it chosen automatically")
				return
			}
		}
	}
}

// subsetLabels checks that each subset selects at least one endpoint. It skips services without
// endpoints.
func (a *analysis) subsetLabels(o *config.Object, spec *networking.DestinationRule, host string) {
	for i, s := range spec.Subsets {
		if len(s.Labels) == 0 {
			continue
		}
		if without := a.withoutLabels(s.Labels, host); without != nil {
			a.report(EmptySubset, o, fmt.Sprintf("spec.subsets[%d].labels", i),
				fmt.Sprintf("no endpoint of %s has %s, so requests to subset %s fail",
					without.Host, labelsText(s.Labels), s.Name),
				"correct the labels, or add them to the endpoints")
		}
	}
}

// withoutLabels returns a service of host whose endpoints all lack the labels. It returns nil if
// any endpoint of host has them.
func (a *analysis) withoutLabels(labels map[string]string, host string) (without *registry.Service) {
	for _, s := range a.covered(host) {
		list := a.in.Endpoints.At(s.Key)
		if list.Len() == 0 || s.Resolution == registry.Passthrough {
			continue
		}
		for i := range list.Items {
			if registry.SelectsAll(labels, list.Items[i].Labels) {
				return nil
			}
		}
		if without == nil {
			without = s
		}
	}
	return without
}

// labelsText returns "the label app: web" or "the labels app: web, version: v1".
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

// ruleConflicts reports parts of DestinationRules without effect. Rules of one namespace and host
// are merged: the first trafficPolicy is used, and the first subset of each name.
func (a *analysis) ruleConflicts() {
	type hostKey struct{ namespace, host, selector string }
	groups := map[hostKey][]*config.Object{}
	for o := range a.objects(config.DestinationRule) {
		spec := o.Spec.(*networking.DestinationRule)
		k := hostKey{o.Namespace, config.ResolveHost(spec.Host, o.Namespace, a.in.Mesh.Domain), ""}
		if spec.WorkloadSelector != nil {
			k.selector = fmt.Sprint(spec.WorkloadSelector.MatchLabels)
		}
		groups[k] = append(groups[k], o)
	}
	for k, list := range groups {
		slices.SortFunc(list, push.CompareAge)
		owners := map[string][]*config.Object{} // by part
		check := func(o *config.Object, part, field string) {
			owns := func(w *config.Object) bool { return covers(a.c.ExportedTo(w), a.c.ExportedTo(o)) }
			i := slices.IndexFunc(owners[part], owns)
			if i < 0 {
				owners[part] = append(owners[part], o)
				return
			}
			a.report(ConflictingRules, o, field,
				fmt.Sprintf("has no effect: %s for host %s has a %s too and %s",
					named(owners[part][i]), k.host, part, precedence),
				"put the rules for that host into one object, or remove the part from one of them")
		}
		for _, o := range list {
			spec := o.Spec.(*networking.DestinationRule)
			if spec.TrafficPolicy != nil {
				check(o, "trafficPolicy", "spec.trafficPolicy")
			}
			for i, s := range spec.Subsets {
				check(o, "subset "+s.Name, fmt.Sprintf("spec.subsets[%d]", i))
			}
		}
	}
}
