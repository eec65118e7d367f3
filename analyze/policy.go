package analyze

import (
	"fmt"
	"slices"
	"strconv"

	mesh "istio.io/api/mesh/v1alpha1"
	security "istio.io/api/security/v1beta1"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
)

// policyNamespace is that of the workloads which a policy may select; empty: any.
func (a *analysis) policyNamespace(o *config.Object) string {
	if o.Namespace == a.root() {
		return ""
	}
	return o.Namespace
}

// peerConflicts finds PeerAuthentications without effect: of those for the same workloads the oldest counts, and one
// in the root namespace must not have a selector.
func (a *analysis) peerConflicts() {
	type place struct{ namespace, selector string }
	same := map[place][]*config.Object{}
	for o := range a.objects(config.PeerAuthentication) {
		labels := push.SelectorLabels(o)
		if o.Namespace == a.root() && len(labels) > 0 {
			a.report(IgnoredPeers, o, "spec.selector",
				fmt.Sprintf("has no effect, because policies of the root namespace (%s) are for the whole "+
					"mesh and not for some workloads", o.Namespace),
				"write it into the namespace of the workloads, or remove the selector")
			continue
		}
		at := place{o.Namespace, labelsKey(labels)}
		same[at] = append(same[at], o)
	}
	for at, list := range same {
		slices.SortFunc(list, push.CompareAge)
		field := "spec"
		if at.selector != "" {
			field = "spec.selector"
		}
		for _, o := range list[1:] {
			a.report(ConflictingPeers, o, field,
				fmt.Sprintf("has no effect, because %s is for the same workloads and comes first, by age or by name",
					named(list[0])),
				"put what both say into one object")
		}
	}
}

// selectors finds policies that select no declared workload: what they are to protect may be open.
func (a *analysis) selectors() {
	kinds := []config.Kind{config.PeerAuthentication, config.RequestAuthentication, config.AuthorizationPolicy}
	for _, kind := range kinds {
		for o := range a.objects(kind) {
			want, ns := push.SelectorLabels(o), a.policyNamespace(o)
			if len(want) == 0 || kind == config.PeerAuthentication && ns == "" {
				continue
			}
			some := false
			for range a.allWorkloads().selected(ns, want) {
				some = true
				break
			}
			if some {
				continue
			}
			where := ""
			if ns != "" {
				where = " in namespace " + ns
			}
			a.report(NoMatchingWorkloads, o, "spec.selector.matchLabels",
				fmt.Sprintf("no endpoint, WorkloadEntry, WorkloadGroup or Gateway selector%s has %s, so the "+
					"policy does nothing until a proxy with them connects", where, labelsText(want)),
				"use the labels of the workloads that it is for, or remove it")
		}
	}
}

// policyPorts finds ports of services in AuthorizationPolicies whose workloads listen at other ports: policies go by
// the port of the workload.
func (a *analysis) policyPorts() {
	for o := range a.objects(config.AuthorizationPolicy) {
		for i, r := range o.Spec.(*security.AuthorizationPolicy).Rules {
			for k, to := range r.GetTo() {
				a.listens(o, fmt.Sprintf("spec.rules[%d].to[%d].operation.ports", i, k), to.GetOperation().GetPorts())
			}
			for k, w := range r.GetWhen() {
				if w.GetKey() == "destination.port" {
					a.listens(o, fmt.Sprintf("spec.rules[%d].when[%d].values", i, k), w.GetValues())
				}
			}
		}
	}
}

// listens checks one list of ports of a policy.
func (a *analysis) listens(o *config.Object, path string, ports []string) {
	for i, text := range ports {
		n, err := strconv.ParseUint(text, 10, 16)
		if err != nil {
			continue
		}
		var service *registry.Service
		target, listens := uint32(0), false
		for w := range a.allWorkloads().selected(a.policyNamespace(o), push.SelectorLabels(o)) {
			if w.service == nil {
				continue
			}
			for _, p := range w.service.Ports {
				own := w.endpoint.Port(p)
				listens = listens || own == uint32(n)
				if p.Number == uint32(n) && own != 0 {
					service, target = w.service, own
				}
			}
		}
		if !listens && service != nil && !slices.Contains(ports, strconv.Itoa(int(target))) {
			a.report(ServicePortInPolicy, o, fmt.Sprintf("%s[%d]", path, i),
				fmt.Sprintf("no selected workload listens at port %d, so this matches nothing: it is a port "+
					"of the service %s, whose workloads listen at %d", n, service.Host, target),
				fmt.Sprintf("write %d", target))
		}
	}
}

// providers finds CUSTOM policies whose provider cannot be asked, so that what they match is refused.
func (a *analysis) providers() {
	for o := range a.objects(config.AuthorizationPolicy) {
		spec := o.Spec.(*security.AuthorizationPolicy)
		if spec.Action != security.AuthorizationPolicy_CUSTOM {
			continue
		}
		text, remedy, registry := a.providerProblem(spec.GetProvider().GetName())
		if text != "" {
			a.report(ReferenceNotFound, o, "spec.provider.name", text+", so what this policy matches is refused",
				remedy).registry = registry
		}
	}
}

// providerProblem says why an extension provider cannot be asked; empty when it can.
func (a *analysis) providerProblem(name string) (text, remedy string, registry bool) {
	all := a.mesh.GetExtensionProviders()
	i := slices.IndexFunc(all, func(p *mesh.MeshConfig_ExtensionProvider) bool { return p.GetName() == name })
	if i < 0 {
		return fmt.Sprintf("the mesh has no extension provider %q", name),
			"add it to mesh.extensionProviders in the settings", true
	}
	namespace, host, port := push.ProviderService(all[i])
	if host == "" {
		return fmt.Sprintf("the extension provider %q does not do external authorization", name),
			"name one with envoyExtAuthzHttp or envoyExtAuthzGrpc", false
	}
	for _, s := range a.covered(host) {
		if _, ok := s.Port(port); ok && s.Host == host && (namespace == "" || s.Namespace == namespace) {
			return "", "", false
		}
	}
	return fmt.Sprintf("there is no service %s with port %d, where the extension provider %q is",
		host, port, name), "declare the service", true
}
