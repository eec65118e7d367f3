package consul

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/consul/api"

	"github.com/ashore-mesh/ashore/internal/dnsname"
	"github.com/ashore-mesh/ashore/registry"
)

// instance is one instance of a service, as the mesh needs it.
type instance struct {
	id       string
	created  uint64 // Consul's index when it was registered: the lower, the older
	address  string
	labels   map[string]string
	ports    []port
	external bool
	health   registry.Health
	weight   uint32
	locality registry.Locality
	network  string
	account  string
	tlsMode  string
}

// read converts the instances that can be endpoints, and reports the others.
func (c *converter) read(entries []*api.ServiceEntry) []instance {
	out := make([]instance, 0, len(entries))
	var seen []map[string]string // labels: instances with equal ones share them
	for _, e := range entries {
		in, ok := c.instance(e)
		if !ok {
			continue
		}
		if i := slices.IndexFunc(seen, func(l map[string]string) bool { return maps.Equal(l, in.labels) }); i >= 0 {
			in.labels = seen[i]
		} else if len(seen) < 16 {
			seen = append(seen, in.labels)
		}
		out = append(out, in)
	}
	return c.once(out)
}

func (c *converter) instance(e *api.ServiceEntry) (instance, bool) {
	s := e.Service
	labels := labelsOf(s.Tags, s.Meta)
	in := instance{
		id: s.ID, created: s.CreateIndex, labels: labels,
		external: s.Meta[keyExternal] == "true" || s.Meta["external"] != "" || e.Node.Meta["external-node"] == "true",
		locality: c.locality(e), network: cmp.Or(s.Meta[keyNetwork], e.Node.Meta[keyNetwork], c.o.Network),
	}
	if s.SocketPath != "" {
		c.warn(s.ID, "listens on the unix socket %s, which only its own machine can reach: it is left out", s.SocketPath)
		return in, false
	}
	var main uint32
	in.address, main = c.address(e)
	if !validAddress(in.address) {
		c.warn(s.ID, "its address %q is neither an IP address nor a DNS name: it is left out", in.address)
		return in, false
	}
	in.health, in.weight = c.health(e)
	if in.health == registry.Healthy && in.weight == 0 {
		in.health, in.weight = registry.Unhealthy, 1 // as in Consul's DNS, a weight of zero gets no traffic
	}
	in.account, in.tlsMode = c.identity(s, labels)
	in.ports = c.portsOf(s, labels, main)
	if len(in.ports) == 0 {
		c.portless++
		c.warn(s.ID, "has no port: it is left out")
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

// plain returns an address without brackets and in lower case.
func plain(a string) string {
	a = strings.ToLower(strings.TrimSpace(a))
	if inner, ok := strings.CutPrefix(a, "["); ok {
		a = strings.TrimSuffix(inner, "]")
	}
	if ip, err := netip.ParseAddr(a); err == nil {
		return ip.Unmap().String()
	}
	return strings.TrimSuffix(a, ".")
}

// health returns the health by the checks of an instance and its node, and its weight in that state.
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

// maxWeight is Consul's own limit.
const maxWeight = 65535

func weight(w int) uint32 { return uint32(min(max(0, w), maxWeight)) }

// locality returns where an instance runs. Its metadata comes first, then that of its node, then the locality that
// Consul has for them. Otherwise the region is the datacenter.
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

// identity returns the service account of an instance, and "istio" if it accepts the mesh's mutual TLS. An invalid
// account is replaced by the account default, so that clients neither send plain text nor accept any certificate.
func (c *converter) identity(s *api.AgentService, labels map[string]string) (account, mode string) {
	declared, named := "", false
	if c.o.Identity == identityMetadata {
		account, declared = s.Meta[keyServiceAccount], cmp.Or(s.Meta[keyTLSMode], labels[tlsModeLabel])
	}
	if account != "" && !dnsname.Valid(account) {
		c.warn(s.ID, "%s %q is not the name of a service account and is ignored: use lower-case letters, digits, '-' and '.'",
			keyServiceAccount, account)
		account, named = "", true
	}
	if account == "" && c.o.ServiceAccount != "" {
		account, named = c.accountOfSettings(), true
	}
	switch cmp.Or(declared, c.o.TLSMode) {
	case tlsModeIstio:
		mode = tlsModeIstio
	case "":
		if account != "" || named {
			mode = tlsModeIstio
		}
	case tlsModeDisabled:
	default:
		c.warn(s.ID, "%s %q: want istio or disabled; disabled is used", keyTLSMode, declared)
	}
	if account == "" && named && mode == tlsModeIstio {
		account = "default"
	}
	return account, mode
}

// accountOfSettings returns the service account by the option serviceAccount; empty if it is not a valid name.
func (c *converter) accountOfSettings() string {
	account := accountOf(c.o.ServiceAccount, strings.ToLower(c.name))
	if dnsname.Valid(account) {
		return account
	}
	if !c.badAccount {
		c.badAccount = true
		c.warn("", "the option serviceAccount gives it %q, which is not the name of a service account, "+
			"so clients expect the account default: write %s into the metadata of its instances, or correct serviceAccount",
			account, keyServiceAccount)
	}
	return ""
}

// serviceName stands for the name of the service in the option serviceAccount.
const serviceName = "${service}"

// accountOf returns the service account by the option serviceAccount for a service.
func accountOf(option, service string) string {
	return strings.ReplaceAll(option, serviceName, service)
}

// once keeps one of several registrations with the same address and ports: the healthiest, then the newest.
func (c *converter) once(list []instance) []instance {
	best := make(map[string]int, len(list))
	drop := map[int]bool{}
	for i := range list {
		key := list[i].address
		for _, p := range list[i].ports {
			key += " " + p.name + " " + strconv.Itoa(int(p.target))
		}
		j, twice := best[key]
		if !twice {
			best[key] = i
			continue
		}
		worse := i
		if betterThan(&list[i], &list[j]) {
			worse, best[key] = j, i
		}
		drop[worse] = true
		c.warn(list[worse].id, "has the address and ports of instance %s, which is used instead: deregister the old one",
			list[best[key]].id)
	}
	if len(drop) == 0 {
		return list
	}
	out := list[:0:0]
	for i := range list {
		if !drop[i] {
			out = append(out, list[i])
		}
	}
	return out
}

// betterThan compares two registrations of one address: it gets traffic if one of them is healthy.
func betterThan(a, b *instance) bool {
	rank := map[registry.Health]int{registry.Healthy: 2, registry.Draining: 1}
	return cmp.Or(cmp.Compare(rank[a.health], rank[b.health]), cmp.Compare(a.created, b.created)) > 0
}

// endpoints returns the endpoints of a service with these ports. registered is the name of the port of the
// registrations.
func (c *converter) endpoints(list []instance, ports []registry.Port, registered string) []registry.Endpoint {
	out := make([]registry.Endpoint, len(list))
	for i := range list {
		in := &list[i]
		out[i] = registry.Endpoint{
			Address: in.address, Ports: c.ownPorts(in, ports, registered), Health: in.health, Weight: in.weight,
			Labels: in.labels, Locality: in.locality, Network: in.network,
			Namespace: c.namespace(), Workload: in.id, ServiceAccount: in.account, TLSMode: in.tlsMode,
		}
	}
	return out
}
