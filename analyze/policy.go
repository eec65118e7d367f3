package analyze

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	mesh "istio.io/api/mesh/v1alpha1"
	security "istio.io/api/security/v1beta1"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
)

// policyNamespace returns the namespace of the workloads that a policy may select. It returns an
// empty text for all.
func (a *analysis) policyNamespace(o *config.Object) string {
	if o.Namespace == a.root() {
		return ""
	}
	return o.Namespace
}

// peerConflicts reports PeerAuthentications without effect: those with the same selector as an
// older one, and those in the root namespace with a selector.
func (a *analysis) peerConflicts() {
	groups := selectorGroups{}
	for o := range a.objects(config.PeerAuthentication) {
		labels := push.SelectorLabels(o)
		if o.Namespace == a.root() && len(labels) > 0 {
			a.report(IgnoredPeers, o, "spec.selector",
				fmt.Sprintf("has no effect, because policies of the root namespace (%s) apply to the whole mesh and "+
					"cannot select workloads", o.Namespace),
				"write it into the namespace of the workloads, or remove the selector")
			continue
		}
		groups.add(o, labels)
	}
	for o, first := range groups.conflicts() {
		field := "spec"
		if len(push.SelectorLabels(o)) > 0 {
			field = "spec.selector"
		}
		a.report(ConflictingPeers, o, field,
			fmt.Sprintf("has no effect: %s selects the same workloads and %s", named(first), precedence),
			"merge the two objects")
	}
}

// selectors reports policies and Telemetry objects that select no declared workload: what policies
// are to protect may be open.
func (a *analysis) selectors() {
	kinds := []config.Kind{config.PeerAuthentication, config.RequestAuthentication, config.AuthorizationPolicy,
		config.Telemetry}
	for _, kind := range kinds {
		for o := range a.objects(kind) {
			want, ns := push.SelectorLabels(o), a.policyNamespace(o)
			if kind == config.Telemetry { // of the root namespace, too
				ns = o.Namespace
			}
			if len(want) == 0 || kind == config.PeerAuthentication && ns == "" || a.selectsWorkload(ns, want) {
				continue
			}
			where := ""
			if ns != "" {
				where = " in namespace " + ns
			}
			a.report(NoMatchingWorkloads, o, "spec.selector.matchLabels",
				fmt.Sprintf("no endpoint, WorkloadEntry, WorkloadGroup or Gateway selector%s has %s, so "+
					"this has no effect", where, labelsText(want)),
				"use the labels of the workloads that it is for, or remove it")
		}
	}
}

func (a *analysis) selectsWorkload(namespace string, labels map[string]string) bool {
	for range a.selected(namespace, labels) {
		return true
	}
	return false
}

// policyPorts reports service ports in AuthorizationPolicies whose workloads listen at other ports.
// Policies match the port of the workload.
func (a *analysis) policyPorts() {
	for o := range a.objects(config.AuthorizationPolicy) {
		for i, r := range o.Spec.(*security.AuthorizationPolicy).Rules {
			for k, to := range r.GetTo() {
				path := fmt.Sprintf("spec.rules[%d].to[%d].operation.ports", i, k)
				a.policyPortList(o, path, to.GetOperation().GetPorts())
			}
			for k, w := range r.GetWhen() {
				if w.GetKey() == "destination.port" {
					a.policyPortList(o, fmt.Sprintf("spec.rules[%d].when[%d].values", i, k), w.GetValues())
				}
			}
		}
	}
}

// policyPortList checks one list of ports of a policy.
func (a *analysis) policyPortList(o *config.Object, path string, ports []string) {
	for i, text := range ports {
		n, err := strconv.ParseUint(text, 10, 16)
		if err != nil {
			continue
		}
		var service *registry.Service
		target, listens := uint32(0), false
		for w := range a.selected(a.policyNamespace(o), push.SelectorLabels(o)) {
			if a.stopped() {
				return
			}
			if w.service == nil {
				continue
			}
			for _, p := range w.service.Ports {
				port := w.endpoint.Port(p)
				listens = listens || port == uint32(n)
				if p.Number == uint32(n) && port != 0 {
					service, target = w.service, port
				}
			}
		}
		if !listens && service != nil && !slices.Contains(ports, strconv.Itoa(int(target))) {
			a.report(ServicePortInPolicy, o, fmt.Sprintf("%s[%d]", path, i),
				fmt.Sprintf("%d is a port of service %s, but its workloads listen at %d, so this rule matches no workload",
					n, service.Host, target),
				fmt.Sprintf("write %d", target))
		}
	}
}

// providers reports CUSTOM policies whose provider cannot be called, so that matching requests are
// denied.
func (a *analysis) providers() {
	for o := range a.objects(config.AuthorizationPolicy) {
		spec := o.Spec.(*security.AuthorizationPolicy)
		if spec.Action != security.AuthorizationPolicy_CUSTOM {
			continue
		}
		f := a.providerProblem(o, "spec.provider.name", spec.GetProvider().GetName(), authorization)
		if f != nil {
			f.Text += ", so requests that match this policy are denied"
		}
	}
}

// telemetryProviders reports Telemetry objects whose providers receive nothing.
func (a *analysis) telemetryProviders() {
	for o := range a.objects(config.Telemetry) {
		for _, r := range push.ProviderReferences(o) {
			if f := a.providerProblem(o, r.Field, r.Name, r.Signal); f != nil {
				if f.Severity = feed.Warning; f.offline != Info {
					f.offline = feed.Warning
				}
				f.Text += fmt.Sprintf(", so nothing receives these %s", r.Signal)
			}
		}
	}
}

// authorization is the purpose of a provider that is asked about requests.
const authorization config.Signal = "external authorization"

// providerProblem reports why an extension provider cannot be used for a purpose. It returns the
// finding, or nil if there is none.
func (a *analysis) providerProblem(o *config.Object, field, name string, purpose config.Signal) *Finding {
	all := a.mesh.GetExtensionProviders()
	i := slices.IndexFunc(all, func(p *mesh.MeshConfig_ExtensionProvider) bool { return p.GetName() == name })
	if i < 0 {
		f := a.report(ReferenceNotFound, o, field, fmt.Sprintf("the mesh has no extension provider %q", name),
			"add it to mesh.extensionProviders in the settings"+a.otherProviders(purpose))
		f.offline = Info
		return f
	}
	namespace, host, port := push.ProviderService(all[i])
	if actual := cmp.Or(config.SignalOf(all[i]), authorization); actual != purpose {
		return a.report(ReferenceNotFound, o, field, fmt.Sprintf("extension provider %q does not do %s", name, purpose),
			"name one that does"+a.otherProviders(purpose))
	}
	for _, s := range a.covered(host) {
		if _, ok := s.Port(port); ok && s.Host == host && (namespace == "" || s.Namespace == namespace) {
			return nil
		}
	}
	if host == "" {
		return nil
	}
	f := a.report(ReferenceNotFound, o, field,
		fmt.Sprintf("no service %s has port %d, which extension provider %q needs", host, port, name), "declare the service")
	f.offline = Info
	return f
}

// otherProviders lists the providers for a purpose, as the end of a remedy.
func (a *analysis) otherProviders(purpose config.Signal) string {
	if purpose == authorization {
		purpose = ""
	}
	if names := config.ProvidersOf(a.mesh, purpose); len(names) > 0 {
		return "; the mesh has " + strings.Join(names, ", ")
	}
	return ""
}
