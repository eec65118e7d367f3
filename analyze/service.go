package analyze

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/registry"
)

// services checks that declared services have endpoints, and that clients send mutual TLS to
// workloads that accept it.
func (a *analysis) services() {
	for key, s := range a.in.Services.All() {
		if a.stopped() {
			return
		}
		o := a.in.Objects.At(config.ParseKey(s.Object))
		if o == nil {
			continue // only registries have it
		}
		spec, ok := o.Spec.(*networking.ServiceEntry)
		if !ok {
			continue
		}
		list := a.in.Endpoints.At(key)
		declares := len(spec.Endpoints) > 0 || spec.WorkloadSelector != nil
		if s.Resolution == registry.Static && !s.Relayed && list.Len() == 0 && !declares {
			a.report(EmptyService, o, "spec",
				fmt.Sprintf("%s has no endpoints, so requests to it fail", s.Host),
				"write endpoints or workloadSelector, or register instances of it")
		}
		acceptsMTLS := func(ep registry.Endpoint) bool { return ep.TLSMode == "istio" }
		plaintext := s.External && a.mesh.GetEnableAutoMtls().GetValue()
		if !plaintext || list.Len() == 0 || !slices.ContainsFunc(list.Items, acceptsMTLS) {
			continue
		}
		if rule := a.c.RuleFor(s.Namespace, s); rule == nil || rule.Spec.GetTrafficPolicy().GetTls() == nil {
			a.report(PlaintextToMesh, o, "spec.location",
				fmt.Sprintf("workloads of %s accept mutual TLS, but clients send them plaintext, because the service is "+
					"outside of the mesh (MESH_EXTERNAL, the default)", s.Host),
				"write location: MESH_INTERNAL, or a DestinationRule with the tls mode that is meant")
		}
	}
}

// addressPort is where connections to services meet. Comparable.
type addressPort struct {
	address netip.Prefix // zero: any address that no service has
	port    uint32
}

func (p addressPort) String() string {
	if !p.address.IsValid() {
		return fmt.Sprintf("port %d of addresses that no service has", p.port)
	}
	return fmt.Sprintf("address %s port %d", strings.TrimSuffix(p.address.String(), "/32"), p.port)
}

// addressConflicts reports services that connections to their address and port do not reach.
//
// Source: Istio. A sidecar has one listener for an address and port. It selects TLS services by SNI
// and HTTP services by the Host header. Other connections go to the oldest service. xds/gen has the
// same rule.
func (a *analysis) addressConflicts() {
	places := map[addressPort][]*registry.Service{}
	for _, s := range a.in.Services.All() {
		addresses := s.Addresses
		if len(addresses) == 0 {
			addresses = []netip.Prefix{{}}
		}
		for _, p := range s.Ports {
			for _, ip := range addresses {
				if at := (addressPort{ip.Masked(), p.Number}); needsAddress(p, ip) {
					places[at] = append(places[at], s)
				}
			}
		}
	}
	for at, members := range places {
		if a.stopped() {
			return
		}
		slices.SortStableFunc(members, (*registry.Service).CompareAge)
		var owners []*registry.Service
		for _, s := range members {
			if i := slices.IndexFunc(owners, func(o *registry.Service) bool { return a.excludes(o, s) }); i >= 0 {
				a.reportAddress(at, s, owners[i])
			} else {
				owners = append(owners, s)
			}
		}
	}
}

// needsAddress reports whether a service cannot share the address and port with other services.
func needsAddress(p registry.Port, ip netip.Prefix) bool {
	switch {
	case p.Protocol == registry.UDP || p.Protocol.IsHTTP() || p.Protocol.IsTLS():
		return false // not proxied, or selected by host or SNI
	case p.Protocol == registry.Unknown && !ip.IsValid():
		return false // most are HTTP; proxies that capture DNS reach the rest by allocated addresses
	default:
		return true
	}
}

// excludes reports whether all clients that see s reach other, which is older, instead.
func (a *analysis) excludes(other, s *registry.Service) bool {
	if other.Host == s.Host || other.Object != "" && other.Object == s.Object {
		return false
	}
	return covers(a.c.ServiceExportedTo(other), a.c.ServiceExportedTo(s))
}

func (a *analysis) reportAddress(at addressPort, s, first *registry.Service) {
	o := a.in.Objects.At(config.ParseKey(s.Object))
	if o == nil {
		return // only registries have it, so there is no object to correct
	}
	where := "from " + first.Source
	if f := a.in.Objects.At(config.ParseKey(first.Object)); f != nil {
		where = named(f)
	}
	port, _ := s.Port(at.port)
	kind := ""
	if port.Protocol == registry.Unknown {
		kind = " that are not HTTP"
	}
	remedy := "use another address or port for one of the two, or export them to different namespaces"
	if !at.address.IsValid() && len(s.AutoAddresses) > 0 {
		remedy += fmt.Sprintf("; proxies that capture DNS reach it by its allocated address, %s", s.AutoAddresses[0])
	}
	a.report(ConflictingAddresses, o, fmt.Sprintf("spec.ports[%d]", slices.Index(s.Ports, port)),
		fmt.Sprintf("connections to %s%s go to host %s (%s), not to %s, from clients that see both",
			at, kind, first.Host, where, s.Host),
		remedy)
}
