package analyze

import (
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

// overlaps reports Telemetry objects and ProxyConfigs that select a workload of an older one.
func (a *analysis) overlaps() {
	for kind, code := range map[config.Kind]Code{config.Telemetry: ConflictingTelemetry,
		config.ProxyConfig: ConflictingProxies} {
		selecting := map[string][]*config.Object{} // by namespace
		for o := range a.objects(kind) {
			if len(push.SelectorLabels(o)) > 0 {
				selecting[o.Namespace] = append(selecting[o.Namespace], o)
			}
		}
		for namespace, list := range selecting {
			if len(list) > 1 {
				slices.SortFunc(list, push.CompareAge)
				a.levelOverlaps(namespace, list, code)
			}
		}
	}
}

// levelOverlaps reports each object of a list that selects a workload of an older one. The list is of
// one namespace and sorted by age.
func (a *analysis) levelOverlaps(namespace string, list []*config.Object, code Code) {
	reported := map[*config.Object]bool{}
	for w := range a.selected(namespace, nil) {
		if a.stopped() {
			return
		}
		var first *config.Object
		for _, o := range list {
			switch {
			case !registry.SelectsAll(push.SelectorLabels(o), w.labels):
			case first == nil:
				first = o
			case !reported[o]:
				reported[o] = true
				a.report(code, o, "spec.selector",
					fmt.Sprintf("has no effect on workloads that %s selects too: that one %s", named(first), precedence),
					"merge the two objects, or select different workloads")
			}
		}
	}
}

// selectors reports policies, settings, EnvoyFilters and TrafficExtensions that select no declared
// workload: what policies are to protect may be open.
func (a *analysis) selectors() {
	kinds := []config.Kind{config.PeerAuthentication, config.RequestAuthentication, config.AuthorizationPolicy,
		config.Telemetry, config.ProxyConfig, config.EnvoyFilter, config.TrafficExtension}
	for _, kind := range kinds {
		for o := range a.objects(kind) {
			want, ns := push.SelectorLabels(o), a.policyNamespace(o)
			if kind == config.Telemetry || kind == config.ProxyConfig { // of the root namespace, too
				ns = o.Namespace
			}
			switch {
			case len(want) == 0:
				continue
			case kind == config.PeerAuthentication && ns == "":
				a.report(IgnoredPeers, o, "spec.selector",
					fmt.Sprintf("has no effect, because policies of the root namespace (%s) apply to the whole mesh and "+
						"cannot select workloads", o.Namespace),
					"write it into the namespace of the workloads, or remove the selector")
				continue
			case a.selectsWorkload(ns, want):
				continue
			}
			where := ""
			if ns != "" {
				where = " in namespace " + ns
			}
			field := "spec.selector.matchLabels"
			if kind == config.EnvoyFilter {
				field = "spec.workloadSelector.labels"
			}
			a.report(NoMatchingWorkloads, o, field,
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

// providers reports policies, Telemetry objects and settings whose extension providers cannot be
// used.
func (a *analysis) providers() {
	defaults := a.mesh.GetDefaultProviders()
	for _, d := range []struct {
		field  string
		names  []string
		signal config.Signal
	}{
		{"accessLogging", defaults.GetAccessLogging(), config.AccessLogs},
		{"metrics", defaults.GetMetrics(), config.Metrics},
		{"tracing", defaults.GetTracing(), config.Spans},
	} {
		for i, name := range d.names {
			field := fmt.Sprintf("mesh.defaultProviders.%s[%d]", d.field, i)
			a.providerReference(nil, push.ProviderReference{Name: name, Field: field, Signal: d.signal})
		}
	}
	for _, kind := range []config.Kind{config.AuthorizationPolicy, config.Telemetry} {
		for o := range a.objects(kind) {
			for _, r := range push.ProviderReferences(o) {
				a.providerReference(o, r)
			}
		}
	}
}

// providerReference reports an extension provider that does not exist or cannot be called. The
// settings name it if o is nil.
func (a *analysis) providerReference(o *config.Object, r push.ProviderReference) {
	all, offline := a.mesh.GetExtensionProviders(), feed.Error
	others := ""
	if names := config.ProvidersOf(a.mesh, r.Signal); len(names) > 0 {
		others = "; the mesh has " + strings.Join(names, ", ")
	}
	var text, remedy string
	i := slices.IndexFunc(all, func(p *mesh.MeshConfig_ExtensionProvider) bool { return p.GetName() == r.Name })
	switch {
	case i < 0:
		text = fmt.Sprintf("the mesh has no extension provider %q", r.Name)
		remedy, offline = "add it to mesh.extensionProviders in the settings"+others, Info
	case config.SignalOf(all[i]) != r.Signal:
		text = fmt.Sprintf("extension provider %q does not receive %s", r.Name, r.Signal)
		remedy = "name one that does" + others
	default:
		namespace, host, port := push.ProviderService(all[i])
		serves := func(s *registry.Service) bool {
			_, ok := s.Port(port)
			return ok && s.Host == host && (namespace == "" || s.Namespace == namespace)
		}
		if host == "" || slices.ContainsFunc(a.covered(host), serves) {
			return
		}
		text = fmt.Sprintf("no service %s has port %d, which extension provider %q needs", host, port, r.Name)
		remedy, offline = "declare the service", Info
	}
	severity, effect := feed.Warning, ", so nothing receives these "+string(r.Signal)
	if r.Signal == config.Requests {
		severity, effect = feed.Error, ", so requests that match this policy are denied"
	}
	f := a.report(ReferenceNotFound, o, r.Field, text+effect, remedy)
	f.Severity, f.bySettings = severity, i < 0
	if f.offline = offline; offline != Info {
		f.offline = severity
	}
}
