package xds

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/spiffe"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/registry/entry"
)

// maxRegistrations is how many registrations one workload may have at once. It needs one for each
// of its groups, and for moments another one when its address changes.
const maxRegistrations = 16

// claim is the use of an address by an identity.
type claim struct {
	account entry.Account
	address netip.Addr
	network string            // empty: unknown
	ports   map[string]uint32 // empty: all ports
	owner   string            // the WorkloadEntry or the workload, for messages
}

// declaredClaim is the claim of a WorkloadEntry with that IP address.
func declaredClaim(o *config.Object, address netip.Addr) claim {
	w := o.Spec.(*networking.WorkloadEntry)
	return claim{
		account: entry.AccountOf(o), address: address, network: w.Network, ports: w.Ports, owner: o.Key.String(),
	}
}

// registeredClaim is the claim of a registration with an identity. group is its WorkloadGroup, or
// nil if that was deleted.
func registeredClaim(r *registry.Registration, group *config.Object) claim {
	id, _ := spiffe.Parse(r.Identity) // it was verified when the workload registered
	c := claim{
		account: entry.Account{Namespace: id.Namespace, Name: id.ServiceAccount},
		address: r.Addresses[0], network: r.Network, owner: "workload " + r.Namespace + "/" + r.Name,
	}
	if group != nil {
		template := group.Spec.(*networking.WorkloadGroup).GetTemplate()
		c.network, c.ports = cmp.Or(c.network, template.GetNetwork()), template.GetPorts()
	}
	return c
}

// conflict returns an error if c and other are of two identities and share an address and a port.
func (c claim) conflict(other claim) error {
	sameNetwork := c.network == other.network || c.network == "" || other.network == ""
	if c.address != other.address || c.account == other.account || !sameNetwork || !sharePort(c.ports, other.ports) {
		return nil
	}
	return status.Errorf(codes.FailedPrecondition,
		"%s of service account %s cannot register the address %s (%s): %s of service account %s uses it (%s); "+
			"remove one of them, give both the same serviceAccount if they are one workload, or set different ports "+
			"(template.ports of a WorkloadGroup, ports of a WorkloadEntry)",
		c.owner, c.account, c.address, c.shownPorts(), other.owner, other.account, other.shownPorts())
}

// shownPorts is the ports of c in messages.
func (c claim) shownPorts() string {
	if len(c.ports) == 0 {
		return "all ports"
	}
	return fmt.Sprintf("ports %v", slices.Sorted(maps.Values(c.ports)))
}

// sharePort says whether two sets of ports have one in common. An empty set stands for all ports.
func sharePort(a, b map[string]uint32) bool {
	if len(a) == 0 || len(b) == 0 {
		return true
	}
	for _, port := range a {
		for _, other := range b {
			if port == other {
				return true
			}
		}
	}
	return false
}

// checkAddress returns an error if a workload of group whose connection comes from may not register
// address. A nil group allows every address that others can reach.
func checkAddress(group *config.Object, address, from netip.Addr) error {
	listed := func(p netip.Prefix) bool { return p.Contains(address) }
	switch {
	case address.IsUnspecified() || address.IsMulticast() || address.IsLinkLocalUnicast():
		return status.Errorf(codes.PermissionDenied,
			"%s is unspecified, multicast or link-local and cannot be registered: set the workload's address", address)
	case address.IsLoopback() && !from.IsLoopback():
		return status.Errorf(codes.PermissionDenied,
			"the address %s leads every proxy to its own machine: set the workload's address", address)
	case group == nil || address == from || address.IsLoopback():
		return nil
	case slices.ContainsFunc(config.AllowedAddresses(group), listed):
		return nil
	}
	return status.Errorf(codes.PermissionDenied,
		"the address %s is not the one that the connection comes from (%s): if the workload is behind NAT or "+
			"a load balancer, or has several addresses, add %s or its range to the annotation %s of %s",
		address, from, address, config.AllowAddressesAnnotation, group.Key)
}
