package entry

import (
	"cmp"
	"maps"
	"net/netip"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/registry"
)

// tlsModeLabel sets whether a workload accepts mutual TLS. Without it, a workload with a service
// account does. Source: Istio, label security.istio.io/tlsMode.
const tlsModeLabel = "security.istio.io/tlsMode"

// endpoint returns the endpoint of a WorkloadEntry, which is an object or in the list of a
// ServiceEntry.
func endpoint(w *networking.WorkloadEntry, namespace, name string, labels map[string]string) registry.Endpoint {
	ep := registry.Endpoint{
		Address:        w.Address,
		Ports:          w.Ports,
		Labels:         labels,
		Locality:       registry.ParseLocality(w.Locality),
		Network:        cmp.Or(w.Network, labels[registry.NetworkLabel]),
		Weight:         w.Weight,
		ServiceAccount: w.ServiceAccount,
		Namespace:      namespace,
		Workload:       name,
	}
	switch mode, ok := labels[tlsModeLabel]; {
	case ok && mode != "disabled":
		ep.TLSMode = mode
	case !ok && w.ServiceAccount != "":
		ep.TLSMode = registry.TLSModeIstio
	}
	return ep
}

// listed returns the endpoints that a ServiceEntry lists.
func listed(o *config.Object) []registry.Endpoint {
	spec := o.Spec.(*networking.ServiceEntry)
	out := make([]registry.Endpoint, len(spec.Endpoints))
	for i, w := range spec.Endpoints {
		out[i] = endpoint(w, o.Namespace, o.Name, w.Labels)
	}
	return out
}

// selected returns the endpoints of a namespace that have labels, one for each address:
// WorkloadEntry objects, then registered workloads.
func (d *Deriver) selected(namespace string, labels map[string]string) []registry.Endpoint {
	var s selection
	for _, w := range d.written.selected(namespace, labels) {
		s.append(d.endpointOf(w), w)
	}
	for _, w := range d.registered.selected(namespace, labels) {
		s.addRegistered(d.endpointOf(w), w)
	}
	return s.endpoints
}

// endpointOf returns the endpoint of a workload. For a WorkloadEntry that an operator wrote, a proxy
// may report the health.
func (d *Deriver) endpointOf(w *workload) registry.Endpoint {
	o, r := w.object, w.registration
	ep := endpoint(o.Spec.(*networking.WorkloadEntry), o.Namespace, o.Name, labelsOf(o))
	probed := o.Annotations[probedAnnotation] == "true"
	var report registry.Report
	if r != nil {
		report, ep.States = r.Health, r.Health.Ports
	} else if r = d.registrations.At(registry.RegistrationKey{Namespace: o.Namespace, Name: o.Name}); r != nil &&
		authenticatedAs(r, AccountOf(o)) {
		report, probed = r.Health, probed || r.Probed
	}
	ep.Health = healthOf(report, probed)
	return ep
}

func healthOf(h registry.Report, probed bool) registry.Health {
	if h.Healthy(probed) {
		return registry.Healthy
	}
	return registry.Unhealthy
}

// selection collects endpoints.
type selection struct {
	endpoints []registry.Endpoint
	workloads []*workload      // those of endpoints
	byAddress map[string][]int // indexes in endpoints
}

func (s *selection) append(ep registry.Endpoint, w *workload) {
	if s.byAddress == nil {
		s.byAddress = map[string][]int{}
	}
	address := canonical(ep.Address)
	s.byAddress[address] = append(s.byAddress[address], len(s.endpoints))
	s.endpoints, s.workloads = append(s.endpoints, ep), append(s.workloads, w)
}

// addRegistered adds the endpoint of a registered workload. If an operator wrote a WorkloadEntry
// with the same address and account, its endpoint gets the health instead. Of two registered
// workloads with the same address, account and ports, the connected one is used.
func (s *selection) addRegistered(ep registry.Endpoint, w *workload) {
	for _, i := range s.byAddress[canonical(ep.Address)] {
		other, owner := &s.endpoints[i], s.workloads[i]
		if other.Network != ep.Network && other.Network != "" && ep.Network != "" {
			continue
		}
		if newAccount(other.Namespace, other.ServiceAccount) != newAccount(ep.Namespace, ep.ServiceAccount) {
			continue // one identity must not change the health of another
		}
		if owner.registration == nil {
			other.Health, other.States = max(other.Health, ep.Health), ep.States
			return
		}
		if !maps.Equal(other.Ports, ep.Ports) {
			continue
		}
		if !owner.registration.DisconnectedAt.IsZero() && w.registration.DisconnectedAt.IsZero() {
			*other, s.workloads[i] = ep, w
		}
		return
	}
	s.append(ep, w)
}

// canonical writes an IP address in its canonical form, as registrations do.
func canonical(address string) string {
	if a, err := netip.ParseAddr(address); err == nil {
		return a.Unmap().String()
	}
	return address
}
