package consul

import (
	"cmp"
	"net/netip"
	"strconv"
	"strings"

	"github.com/hashicorp/consul/api"

	"github.com/ashore-mesh/ashore/internal/dnsname"
	"github.com/ashore-mesh/ashore/registry"
)

// instance is one instance of a service.
type instance struct {
	ep       registry.Endpoint // without Ports
	ports    []port
	created  uint64 // Consul's index when it was registered: lower is older
	external bool
}

// read returns the instances that can be endpoints, and warns of the others.
func (c *converter) read(entries []*api.ServiceEntry) []instance {
	out := make([]instance, 0, len(entries))
	for _, e := range entries {
		if in, ok := c.instance(e); ok {
			out = append(out, in)
		}
	}
	return c.dropDuplicates(out)
}

// instance converts an entry. It returns false if the entry cannot be an endpoint.
func (c *converter) instance(e *api.ServiceEntry) (instance, bool) {
	s := e.Service
	labels := labelsOf(s.Tags, s.Meta)
	in := instance{
		created:  s.CreateIndex,
		external: s.Meta[keyExternal] == "true" || s.Meta["external"] != "" || e.Node.Meta["external-node"] == "true",
	}
	in.ep = registry.Endpoint{
		Workload: s.ID, Namespace: c.namespace(), Labels: labels, Locality: c.locality(e),
		Network: cmp.Or(s.Meta[keyNetwork], e.Node.Meta[keyNetwork], c.o.Network),
	}
	if s.SocketPath != "" {
		c.warn(s.ID, "listens on the unix socket %s, which only its own machine can reach: it is left out",
			s.SocketPath)
		return in, false
	}
	var main uint32
	in.ep.Address, main = c.address(e)
	if !validAddress(in.ep.Address) {
		c.warn(s.ID, "its address %q is neither an IP address nor a DNS name: it is left out", in.ep.Address)
		return in, false
	}
	in.ep.Health, in.ep.Weight = c.health(e)
	if in.ep.Health == registry.Healthy && in.ep.Weight == 0 {
		// As in Consul's DNS, a weight of zero gets no traffic.
		in.ep.Health, in.ep.Weight = registry.Unhealthy, 1
	}
	in.ep.ServiceAccount, in.ep.TLSMode = c.identity(s, labels)
	in.ports = c.portsOf(s, labels, main)
	if len(in.ports) == 0 {
		c.warn(s.ID, "has no port and is left out: register it with a port, or add %sNAME to its metadata", keyPortPrefix)
	}
	return in, len(in.ports) > 0
}

func validAddress(a string) bool {
	if _, err := netip.ParseAddr(a); err == nil {
		return true
	}
	return dnsname.Valid(a)
}

// address returns the address of an instance, and its port there.
func (c *converter) address(e *api.ServiceEntry) (string, uint32) {
	tags := c.o.AddressTags
	if len(tags) == 0 && c.at.Datacenter != "" {
		tags = []string{"wan"}
	}
	own := uint32(min(max(0, e.Service.Port), 65536))
	for _, t := range tags {
		if a, ok := e.Service.TaggedAddresses[t]; ok && a.Address != "" {
			if a.Port > 0 && a.Port <= 65535 {
				own = uint32(a.Port)
			}
			return plain(a.Address), own
		}
	}
	if e.Service.Address != "" {
		return plain(e.Service.Address), own
	}
	for _, t := range tags {
		if a := e.Node.TaggedAddresses[t]; a != "" {
			return plain(a), own
		}
	}
	return plain(e.Node.Address), own
}

// plain returns the canonical form of an address.
func plain(a string) string {
	if ip, err := netip.ParseAddr(a); err == nil {
		return ip.Unmap().String()
	}
	return strings.TrimSuffix(strings.ToLower(a), ".")
}

// health returns the health of an instance, which follows from its checks and those of its node,
// and its weight.
func (c *converter) health(e *api.ServiceEntry) (registry.Health, uint32) {
	weights := e.Service.Weights
	if weights == (api.AgentWeights{}) {
		weights = api.AgentWeights{Passing: 1, Warning: 1}
	}
	switch e.Checks.AggregatedStatus() {
	case api.HealthPassing:
		return registry.Healthy, weight(weights.Passing)
	case api.HealthWarning:
		if c.o.Warning == warningDrop {
			return registry.Unhealthy, weight(weights.Warning)
		}
		return registry.Healthy, weight(weights.Warning)
	case api.HealthMaint:
		return registry.Draining, weight(weights.Passing)
	default: // critical, or unknown
		return registry.Unhealthy, weight(weights.Passing)
	}
}

// maxWeight is Consul's maximum weight.
const maxWeight = 65535

func weight(w int) uint32 { return uint32(min(max(0, w), maxWeight)) }

// locality returns where an instance runs. Its metadata comes first, then that of its node, then
// the locality that Consul has for them. Otherwise the region is the datacenter.
func (c *converter) locality(e *api.ServiceEntry) registry.Locality {
	if l := cmp.Or(e.Service.Meta[keyLocality], e.Node.Meta[keyLocality]); l != "" {
		return registry.ParseLocality(l)
	}
	for _, l := range []*api.Locality{e.Service.Locality, e.Node.Locality} {
		if l != nil && l.Region != "" {
			return registry.Locality{Region: l.Region, Zone: l.Zone}
		}
	}
	return registry.Locality{Region: cmp.Or(e.Node.Datacenter, c.at.Datacenter)}
}

// identity returns the service account of an instance, and "istio" if it accepts the mesh's mutual
// TLS. An invalid account becomes "default", so that clients still verify a service account.
func (c *converter) identity(s *api.AgentService, labels map[string]string) (account, mode string) {
	account = accountOf(c.o.ServiceAccount, strings.ToLower(c.name))
	if c.o.Identity == identityMetadata {
		account, mode = cmp.Or(s.Meta[keyServiceAccount], account), cmp.Or(s.Meta[keyTLSMode], labels[tlsModeLabel])
	}
	if account != "" && !dnsname.Valid(account) {
		c.warn(s.ID, "%q is not the name of a service account, so clients expect the account default: "+
			"correct %s in its metadata, or the option serviceAccount; use lower-case letters, digits, '-' and '.'",
			account, keyServiceAccount)
		account = "default"
	}
	switch mode {
	case tlsModeIstio:
		return account, mode
	case tlsModeDisabled:
		return account, ""
	case "":
		if account != "" {
			return account, tlsModeIstio
		}
	default:
		c.warn(s.ID, "%s %q: want istio or disabled; disabled is used", keyTLSMode, mode)
	}
	return account, ""
}

// serviceName is the placeholder for the name of the service in the option serviceAccount.
const serviceName = "${service}"

// accountOf expands the option serviceAccount for a service.
func accountOf(option, service string) string {
	return strings.ReplaceAll(option, serviceName, service)
}

// dropDuplicates keeps one of several registrations with the same address and ports: the
// healthiest, then the newest.
func (c *converter) dropDuplicates(list []instance) []instance {
	used := make(map[string]*instance, len(list)) // by addresses
	for i := range list {
		key := list[i].addresses()
		if other := used[key]; other == nil || betterThan(&list[i], other) {
			used[key] = &list[i]
		}
	}
	out := make([]instance, 0, len(list))
	for i := range list {
		in := &list[i]
		other := used[in.addresses()]
		if other == in {
			out = append(out, *in)
			continue
		}
		c.warn(in.ep.Workload, "has the address and ports of instance %s, which is used instead: deregister the old one",
			other.ep.Workload)
	}
	return out
}

// addresses returns a text that identifies the address and ports of an instance.
func (in *instance) addresses() string {
	key := in.ep.Address
	for _, p := range in.ports {
		key += " " + p.name + " " + strconv.Itoa(int(p.target))
	}
	return key
}

// betterThan reports whether a is used instead of b.
func betterThan(a, b *instance) bool {
	rank := map[registry.Health]int{registry.Healthy: 2, registry.Draining: 1}
	return cmp.Or(cmp.Compare(rank[a.ep.Health], rank[b.ep.Health]), cmp.Compare(a.created, b.created)) > 0
}

// endpoints returns the endpoints of a service with these ports.
func (c *converter) endpoints(list []instance, ports []registry.Port) []registry.Endpoint {
	out := make([]registry.Endpoint, len(list))
	for i := range list {
		out[i] = list[i].ep
		out[i].Ports = c.ownPorts(&list[i], ports)
	}
	return out
}
