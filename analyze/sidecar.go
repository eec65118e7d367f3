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

// sidecars checks the egress listeners of Sidecars, and that no two Sidecars have the same selector.
func (a *analysis) sidecars() {
	type place struct{ namespace, selector string }
	var byPort map[uint32][]*registry.Service
	same := map[place][]*config.Object{}
	for o := range a.objects(config.Sidecar) {
		spec := o.Spec.(*networking.Sidecar)
		at := place{o.Namespace, labelsKey(spec.GetWorkloadSelector().GetLabels())}
		same[at] = append(same[at], o)
		for i, l := range spec.Egress {
			everyPort := l.Port == nil || strings.EqualFold(l.Port.Protocol, "HTTP_PROXY")
			if everyPort || strings.HasPrefix(l.Bind, "unix://") || o.Namespace == a.root() {
				continue // it leads to services with other ports too, or is for all namespaces
			}
			if byPort == nil {
				byPort = a.servicesByPort()
			}
			a.egressListener(o, fmt.Sprintf("spec.egress[%d]", i), l, byPort)
		}
	}
	for at, list := range same {
		slices.SortFunc(list, push.CompareAge)
		for _, o := range list[1:] {
			if at.selector == "" {
				a.report(SeveralDefaultSidecar, o, "spec.workloadSelector",
					fmt.Sprintf("has no effect, because %s is for all of namespace %s too and comes first, by "+
						"age or by name", named(list[0]), at.namespace),
					"put what both say into one Sidecar, or give this one a workloadSelector")
				continue
			}
			a.report(ConflictingSidecars, o, "spec.workloadSelector.labels",
				fmt.Sprintf("has no effect, because %s has the same labels and comes first, by age or by name",
					named(list[0])),
				"put what both say into one Sidecar, or select different workloads")
		}
	}
}

// servicesByPort are the services by each port that is proxied: all but UDP.
func (a *analysis) servicesByPort() map[uint32][]*registry.Service {
	out := map[uint32][]*registry.Service{}
	for _, s := range a.in.Services.All() {
		for _, p := range s.Ports {
			if p.Protocol != registry.UDP {
				out[p.Number] = append(out[p.Number], s)
			}
		}
	}
	return out
}

// egressListener checks that a listener imports a service with its port: proxies leave it out otherwise.
func (a *analysis) egressListener(
	o *config.Object, at string, l *networking.IstioEgressListener, byPort map[uint32][]*registry.Service,
) {
	imports := hostSet{}
	for _, h := range l.Hosts {
		imports.add(h, o.Namespace)
	}
	n := l.Port.Number
	remedy := "use the port of a service, or declare the port"
	for _, s := range byPort[n] {
		if a.c.ServiceFor(o.Namespace, s.Host) != s {
			continue
		}
		if imports.covers(s.Namespace, s.Host) {
			return
		}
		remedy = fmt.Sprintf("import a service that has it, such as %s/%s", s.Namespace, s.Host)
	}
	a.report(EmptyEgressListener, o, at, fmt.Sprintf("no imported service has port %d, so proxies leave this "+
		"listener out", n), remedy)
}
