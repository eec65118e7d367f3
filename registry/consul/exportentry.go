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

// Metadata keys of exported entries, in addition to those that an importing mesh reads.
const (
	// keyOwner holds the owner of an entry. An entry without it, or with another owner, is never written or removed.
	keyOwner = "ashore-exported-by"
	// keyHost and keyNamespace identify the service in the mesh, for people.
	keyHost      = "ashore-host"
	keyNamespace = "ashore-namespace"
)

// Maximum lengths of a metadata value and of a label value, in bytes. Sources: Consul, agent/structs (metaValueMaxLength); Kubernetes, labels.
const maxMetaValue, maxLabelValue = 512, 63

// exported is one endpoint as it is registered in Consul.
type exported struct {
	id, name, address string
	port              int
	tags              []string
	meta              map[string]string
	weight            int
	critical          string // why its check is critical; empty: it is passing
}

// equal reports whether two entries are the same in Consul.
func (e exported) equal(o exported) bool { return e.sameService(o) && e.critical == o.critical }

// sameService is equal without the health check.
func (e exported) sameService(o exported) bool {
	return e.id == o.id && e.name == o.name && e.address == o.address && e.port == o.port && e.weight == o.weight &&
		slices.Equal(e.tags, o.tags) && maps.Equal(e.meta, o.meta)
}

// entriesOf returns the entries of a service under a name, by ID.
func entriesOf(x *ExportOptions, name string, s *registry.Service, list []registry.Endpoint) map[string]exported {
	out := map[string]exported{}
	for i := range list {
		e, ok := entryOf(x, name, s, &list[i])
		if old, twice := out[e.id]; !ok || twice && old.critical == "" {
			continue
		}
		out[e.id] = e
	}
	return out
}

// entryOf returns the entry of an endpoint; false when no client outside the mesh could reach it.
func entryOf(x *ExportOptions, name string, s *registry.Service, ep *registry.Endpoint) (exported, bool) {
	address := ep.Address
	if a, err := netip.ParseAddr(address); err == nil {
		address = a.Unmap().WithZone("").String()
		if a.IsUnspecified() {
			return exported{}, false
		}
	} else if !dnsname.Valid(address) {
		return exported{}, false
	}
	port := int(ep.Port(s.Ports[0]))
	if port < 1 || port > 65535 {
		return exported{}, false
	}
	e := exported{
		id: name + ":" + address + ":" + strconv.Itoa(port), name: name, address: address, port: port,
		tags: tagsOf(x, ep.Labels), meta: metaOf(x, s, ep), weight: int(min(max(1, ep.Weight), maxWeight)),
	}
	switch ep.Health {
	case registry.Healthy:
	case registry.Draining:
		e.critical = "draining: the mesh sends it no new requests"
	default:
		e.critical = "unhealthy in the mesh"
	}
	return e, true
}

// tagsOf returns the tags of an entry: those of the options, and "key=value" for the endpoint's labels that the options name. Workloads
// choose their own labels and programs outside the mesh act on tags, so no other labels become tags.
func tagsOf(x *ExportOptions, labels map[string]string) []string {
	out := slices.Clone(x.Tags)
	for _, k := range x.Labels {
		if v, ok := labels[k]; ok && isLabelValue(v) {
			out = append(out, k+"="+v)
		}
	}
	return out
}

func isLabelValue(v string) bool {
	return len(v) <= maxLabelValue && !strings.ContainsFunc(v, func(r rune) bool {
		return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("-_.", r))
	})
}

// metaOf returns the metadata of an entry. Identities are left out: the readers are outside the mesh.
func metaOf(x *ExportOptions, s *registry.Service, ep *registry.Endpoint) map[string]string {
	out := map[string]string{keyOwner: x.Owner, keyHost: s.Host, keyNamespace: s.Namespace}
	for key, value := range map[string]string{keyLocality: ep.Locality.String(), keyNetwork: ep.Network} {
		if value != "" && len(value) <= maxMetaValue {
			out[key] = value
		}
	}
	first := s.Ports[0]
	if first.Protocol != registry.Unknown {
		out[keyProtocol] = strings.ToLower(first.Protocol.String())
	}
	if len(s.Ports) == 1 {
		if own := ep.Port(first); own != first.Number {
			out[keyPort] = strconv.Itoa(int(first.Number))
		}
		return out
	}
	for _, p := range s.Ports {
		key, value, own := keyPortPrefix+p.Name, strconv.Itoa(int(p.Number)), ep.Port(p)
		if own != p.Number {
			value += ":" + strconv.Itoa(int(own))
		}
		if own != 0 && metaKey(key) && p.Name != "" && len(out) < maxMeta {
			out[key] = value
		}
	}
	return out
}

// maxMeta is how many metadata pairs Consul accepts. Source: Consul, agent/structs (metaMaxKeyPairs).
const maxMeta = 64

// service converts the entry for Consul's API.
func (e exported) service() api.AgentService {
	return api.AgentService{
		ID: e.id, Service: e.name, Address: e.address, Port: e.port, Tags: e.tags, Meta: e.meta,
		Weights: api.AgentWeights{Passing: e.weight, Warning: e.weight},
	}
}

// checkIDOf is the ID of the health check of an entry.
func checkIDOf(id string) string { return "ashore:" + id }

// check converts the health for Consul's API.
func (e exported) check(node string) api.HealthCheck {
	return api.HealthCheck{
		Node: node, CheckID: checkIDOf(e.id), Name: "health in the mesh", ServiceID: e.id, ServiceName: e.name, Type: "ashore",
		Status: map[bool]string{true: api.HealthPassing, false: api.HealthCritical}[e.critical == ""], Output: e.critical,
	}
}

// entryIn reads an entry from Consul. Without our check it differs from every wanted entry, so that it is written again.
func entryIn(s *api.AgentService, c *api.HealthCheck) exported {
	e := exported{id: s.ID, name: s.Service, address: s.Address, port: s.Port, tags: s.Tags, meta: s.Meta, weight: s.Weights.Passing, critical: "no check"}
	if len(e.tags) == 0 {
		e.tags = nil
	}
	if c != nil && (c.Status == api.HealthPassing) == (c.Output == "") {
		e.critical = c.Output
	} else if c != nil {
		e.critical = cmp.Or(c.Status, "no status")
	}
	return e
}
