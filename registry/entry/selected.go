package entry

import (
	"maps"
	"net/netip"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/registry"
)

// selection collects the endpoints that a ServiceEntry selects: those that operators wrote, then those that registered
// themselves. What stands at one address is one endpoint.
type selection struct {
	items []registry.Endpoint
	// at are the places in items by address. Nil until it is needed.
	at map[string][]int
	// written is how many of items operators wrote; of the others, from are the registrations.
	written int
	from    []*registry.Registration
}

// selected lists the endpoints of namespace that have the labels of want.
func (d *Deriver) selected(namespace string, want map[string]string) []registry.Endpoint {
	var s selection
	for _, w := range d.workloads.selected(namespace, want) {
		ep := endpoint(w.Spec.(*networking.WorkloadEntry), w.Namespace, w.Name, labelsOf(w))
		ep.Health = d.writtenHealth(w)
		s.items = append(s.items, ep)
	}
	s.written = len(s.items)
	for _, w := range d.registered.index.selected(namespace, want) {
		r := d.registered.of[w]
		ep := endpoint(w.Spec.(*networking.WorkloadEntry), w.Namespace, w.Name, labelsOf(w))
		ep.Health = healthOf(r.Health, w.Annotations[probedAnnotation] == "true")
		ep.States = r.Health.Ports
		s.add(ep, r)
	}
	return s.items
}

// writtenHealth is the health of a workload that an operator wrote: a proxy may report for it.
func (d *Deriver) writtenHealth(o *config.Object) registry.Health {
	probed := o.Annotations[probedAnnotation] == "true"
	r := d.registered.all.At(registry.RegistrationKey{Namespace: o.Namespace, Name: o.Name})
	if r == nil || !provenAs(r, AccountOf(o)) {
		return healthOf(registry.Report{}, probed)
	}
	return healthOf(r.Health, probed || r.Probed)
}

func healthOf(h registry.Report, probed bool) registry.Health {
	if h.Healthy(probed) {
		return registry.Healthy
	}
	return registry.Unhealthy
}

// add takes in a registered workload. Where an operator wrote one of the same address and identity, that counts, and with it
// how the registered one says that it is. Of two registered ones that listen at the same place, the one counts whose proxy
// is connected.
func (s *selection) add(ep registry.Endpoint, r *registry.Registration) {
	if s.at == nil {
		s.at = make(map[string][]int, len(s.items))
		for i := range s.items {
			a := canonical(s.items[i].Address)
			s.at[a] = append(s.at[a], i)
		}
	}
	for _, i := range s.at[ep.Address] {
		other := &s.items[i]
		if other.Network != ep.Network && other.Network != "" && ep.Network != "" {
			continue
		}
		if newAccount(other.Namespace, other.ServiceAccount) != newAccount(ep.Namespace, ep.ServiceAccount) {
			continue // one identity must not change the health of another
		}
		if i < s.written {
			other.Health, other.States = max(other.Health, ep.Health), ep.States
			return
		}
		if !maps.Equal(other.Ports, ep.Ports) {
			continue
		}
		if first := &s.from[i-s.written]; !(*first).DisconnectedAt.IsZero() && r.DisconnectedAt.IsZero() {
			*other, *first = ep, r
		}
		return
	}
	s.at[ep.Address] = append(s.at[ep.Address], len(s.items))
	s.items, s.from = append(s.items, ep), append(s.from, r)
}

// canonical writes an IP address in the one form that registrations have.
func canonical(address string) string {
	if a, err := netip.ParseAddr(address); err == nil {
		return a.Unmap().String()
	}
	return address
}
