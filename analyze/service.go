package analyze

import (
	"fmt"
	"net/netip"
	"slices"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/registry"
)

// services reports ServiceEntries without endpoints, and services that receive plaintext although
// their workloads accept mutual TLS.
func (a *analysis) services() {
	for key, s := range a.in.Services.All() {
		if a.stopped() {
			return
		}
		o := a.in.Objects.At(config.ParseKey(s.Object))
		if o == nil {
			continue // it comes from a registry: there is no object to correct
		}
		spec, ok := o.Spec.(*networking.ServiceEntry)
		if !ok {
			continue
		}
		list := a.in.Endpoints.At(key)
		hasOwnEndpoints := len(spec.Endpoints) > 0 || spec.WorkloadSelector != nil
		if s.Resolution == registry.Static && !s.Relayed && list.Len() == 0 && !hasOwnEndpoints {
			a.report(EmptyService, o, "spec",
				fmt.Sprintf("%s has no endpoints, so requests to it fail", s.Host),
				"add endpoints or a workloadSelector, or register instances")
		}
		acceptsMTLS := func(ep registry.Endpoint) bool { return ep.TLSMode == registry.TLSModeIstio }
		// With automatic mutual TLS, clients send plaintext to services outside of the mesh.
		plaintext := s.External && a.mesh.GetEnableAutoMtls().GetValue()
		if !plaintext || list.Len() == 0 || !slices.ContainsFunc(list.Items, acceptsMTLS) {
			continue
		}
		if rule := a.c.RuleFor(s.Namespace, s); rule == nil || rule.Spec.GetTrafficPolicy().GetTls() == nil {
			a.report(PlaintextToMesh, o, "spec.location",
				fmt.Sprintf("workloads of %s accept mutual TLS, but clients send them plaintext, because the service is "+
					"outside of the mesh (MESH_EXTERNAL, the default)", s.Host),
				"set location: MESH_INTERNAL, or add a DestinationRule with an explicit tls mode")
		}
	}
}

// addressPort is the address and port of an outbound listener, which services may share.
type addressPort struct {
	address netip.Prefix // zero: the listener for destinations that are no address of a service
	port    uint32
}

func (p addressPort) String() string {
	if !p.address.IsValid() {
		return fmt.Sprintf("port %d (services without addresses share it)", p.port)
	}
	address := p.address.String()
	if p.address.IsSingleIP() {
		address = p.address.Addr().String()
	}
	return fmt.Sprintf("address %s port %d", address, p.port)
}

// addressConflicts reports services that clients cannot reach because an older service has the same
// address and port.
//
// Source: Istio. A sidecar has one listener for an address and port. It selects TLS services by SNI
// and HTTP services by the Host header. Other connections go to the oldest service. xds/gen
// implements the same rule.
func (a *analysis) addressConflicts() {
	byAddress := map[addressPort][]*registry.Service{}
	for _, s := range a.in.Services.All() {
		addresses := s.Addresses
		if len(addresses) == 0 {
			addresses = []netip.Prefix{{}}
		}
		for _, p := range s.Ports {
			for _, ip := range addresses {
				if at := (addressPort{ip.Masked(), p.Number}); needsOwnListener(p, ip) {
					byAddress[at] = append(byAddress[at], s)
				}
			}
		}
	}
	for at, services := range byAddress {
		if a.stopped() {
			return
		}
		slices.SortStableFunc(services, (*registry.Service).CompareAge)
		var reachable []*registry.Service
		for _, s := range services {
			if i := slices.IndexFunc(reachable, func(o *registry.Service) bool { return a.hides(o, s) }); i >= 0 {
				a.reportAddress(at, s, reachable[i])
			} else {
				reachable = append(reachable, s)
			}
		}
	}
}

// needsOwnListener reports whether a port needs an address and port that no other service has.
func needsOwnListener(p registry.Port, ip netip.Prefix) bool {
	switch {
	case p.Protocol == registry.UDP || p.Protocol.IsHTTP() || p.Protocol.IsTLS():
		return false // UDP is not proxied; HTTP and TLS services are selected by host or SNI
	case p.Protocol == registry.Unknown && !ip.IsValid():
		return false // most are HTTP; with DNS capture the others have virtual IPs
	default:
		return true
	}
}

// hides reports whether every client that sees s also sees other, the older service, and so reaches
// that one.
func (a *analysis) hides(other, s *registry.Service) bool {
	sameObject := other.Object != "" && other.Object == s.Object
	if other.Host == s.Host || sameObject {
		return false
	}
	return covers(a.c.ServiceExportedTo(other), a.c.ServiceExportedTo(s))
}

func (a *analysis) reportAddress(at addressPort, s, first *registry.Service) {
	o := a.in.Objects.At(config.ParseKey(s.Object))
	if o == nil {
		return // it comes from a registry: there is no object to correct
	}
	where := "from " + first.Source
	if f := a.in.Objects.At(config.ParseKey(first.Object)); f != nil {
		where = named(f)
	}
	port, _ := s.Port(at.port)
	kind := ""
	if port.Protocol == registry.Unknown {
		kind = "non-HTTP "
	}
	a.report(ConflictingAddresses, o, fmt.Sprintf("spec.ports[%d]", slices.Index(s.Ports, port)),
		fmt.Sprintf("%sconnections to %s reach host %s (%s), not %s, from clients that see both services",
			kind, at, first.Host, where, s.Host),
		"use another address or port for one of the two, or export them to different namespaces")
}
