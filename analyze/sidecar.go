package analyze

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
)

// sidecars checks the egress listeners of Sidecars, and that no two Sidecars have the same
// selector.
func (a *analysis) sidecars() {
	groups := selectorGroups{}
	for o := range a.objects(config.Sidecar) {
		spec := o.Spec.(*networking.Sidecar)
		groups.add(o, spec.GetWorkloadSelector().GetLabels())
		for i, l := range spec.Egress {
			everyPort := l.Port == nil || strings.EqualFold(l.Port.Protocol, "HTTP_PROXY")
			if everyPort || strings.HasPrefix(l.Bind, "unix://") || o.Namespace == a.root() {
				continue // it may lead to other ports, or it is the default of all namespaces
			}
			a.egressListener(o, fmt.Sprintf("spec.egress[%d]", i), l)
		}
	}
	for o, first := range groups.conflicts() {
		if len(o.Spec.(*networking.Sidecar).GetWorkloadSelector().GetLabels()) == 0 {
			a.report(SeveralDefaultSidecar, o, "spec.workloadSelector",
				fmt.Sprintf("has no effect: %s is for all of namespace %s too and %s",
					named(first), o.Namespace, precedence),
				"merge the two objects, or give this one a workloadSelector")
			continue
		}
		a.report(ConflictingSidecars, o, "spec.workloadSelector.labels",
			fmt.Sprintf("has no effect: %s has the same labels and %s", named(first), precedence),
			"merge the two objects, or select different workloads")
	}
}

// selectorGroups are objects of one kind by namespace and selector.
type selectorGroups map[[2]string][]*config.Object

func (g selectorGroups) add(o *config.Object, labels map[string]string) {
	key := [2]string{o.Namespace, labelsKey(labels)}
	g[key] = append(g[key], o)
}

// conflicts yields each object without effect, with the object of its group that takes precedence.
func (g selectorGroups) conflicts() iter.Seq2[*config.Object, *config.Object] {
	return func(yield func(o, first *config.Object) bool) {
		for _, list := range g {
			slices.SortFunc(list, push.CompareAge)
			for _, o := range list[1:] {
				if !yield(o, list[0]) {
					return
				}
			}
		}
	}
}

// servicesAt returns the services with a port that is proxied: not UDP.
func (a *analysis) servicesAt(port uint32) []*registry.Service {
	if a.byPort != nil {
		return a.byPort[port]
	}
	a.byPort = map[uint32][]*registry.Service{}
	for _, s := range a.in.Services.All() {
		for _, p := range s.Ports {
			if p.Protocol != registry.UDP {
				a.byPort[p.Number] = append(a.byPort[p.Number], s)
			}
		}
	}
	return a.byPort[port]
}

// egressListener checks that a listener imports a service with its port. Proxies ignore it
// otherwise.
func (a *analysis) egressListener(o *config.Object, at string, l *networking.IstioEgressListener) {
	imports := push.ParseImports(l.Hosts, o.Namespace)
	n := l.Port.Number
	remedy := "use the port of a service, or declare the port"
	for _, s := range a.servicesAt(n) {
		if a.c.ServiceFor(o.Namespace, s.Host) != s {
			continue
		}
		if imports.Cover(s.Namespace, s.Host) {
			return
		}
		remedy = fmt.Sprintf("import a service that has it, such as %s/%s", s.Namespace, s.Host)
	}
	a.report(EmptyEgressListener, o, at,
		fmt.Sprintf("no imported service has port %d, so proxies ignore this listener", n), remedy)
}
