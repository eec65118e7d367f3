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

// Keys of metadata of entries that the mesh has registered, besides those that speak to a mesh which reads them.
const (
	// keyOwner says whose an entry is. An entry without it, or with another owner, is never written or removed.
	keyOwner = "ashore-exported-by"
	// keyHost and keyNamespace say what it is in the mesh, for people.
	keyHost      = "ashore-host"
	keyNamespace = "ashore-namespace"
)

// What Consul and label values hold at most, in bytes. Sources: Consul, agent/structs (metaValueMaxLength); Kubernetes, labels.
const maxMetaValue, maxLabelValue = 512, 63

// exported is one endpoint as it stands in Consul.
type exported struct {
	id, name, address string
	port              int
	tags              []string
	meta              map[string]string
	weight            int
	critical          string // why it is sent nothing; empty: it passes
}

// equal compares what stands in Consul.
func (e exported) equal(o exported) bool { return e.sameService(o) && e.critical == o.critical }

// sameService compares without health.
func (e exported) sameService(o exported) bool {
	return e.id == o.id && e.name == o.name && e.address == o.address && e.port == o.port && e.weight == o.weight &&
		slices.Equal(e.tags, o.tags) && maps.Equal(e.meta, o.meta)
}

// entriesOf are the endpoints of a service as they are to stand in Consul under a name, by their IDs.
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

// entryOf is one; false: nobody in Consul could reach it.
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
		e.critical = "it finishes what it has, and the mesh sends it nothing new"
	default:
		e.critical = "it is not healthy, and the mesh sends it nothing"
	}
	return e, true
}

// tagsOf are the tags of an entry: those of the settings, and the labels of the endpoint that the settings name, as "key=value".
// Workloads choose labels for themselves, and programs outside the mesh obey tags: so no others, and no values that are more
// than a word.
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

// metaOf is the metadata of an entry. Who proves to be what is not told: whoever reads it is of another mesh.
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

// maxMeta is how many pairs Consul takes. Source: Consul, agent/structs (metaMaxKeyPairs).
const maxMeta = 64

// service is the entry as Consul takes it.
func (e exported) service() api.AgentService {
	return api.AgentService{
		ID: e.id, Service: e.name, Address: e.address, Port: e.port, Tags: e.tags, Meta: e.meta,
		Weights: api.AgentWeights{Passing: e.weight, Warning: e.weight},
	}
}

// checkIDOf is the ID of the check that is an entry's health.
func checkIDOf(id string) string { return "ashore:" + id }

// check is its health as Consul takes it.
func (e exported) check(node string) api.HealthCheck {
	return api.HealthCheck{
		Node: node, CheckID: checkIDOf(e.id), Name: "health in the mesh", ServiceID: e.id, ServiceName: e.name, Type: "ashore",
		Status: map[bool]string{true: api.HealthPassing, false: api.HealthCritical}[e.critical == ""], Output: e.critical,
	}
}

// entryIn is an entry as it stands in Consul. Without a check of ours it equals none that is wanted.
func entryIn(s *api.AgentService, c *api.HealthCheck) exported {
	e := exported{id: s.ID, name: s.Service, address: s.Address, port: s.Port, tags: s.Tags, meta: s.Meta, weight: s.Weights.Passing, critical: "it has no check"}
	if len(e.tags) == 0 {
		e.tags = nil
	}
	if c != nil && (c.Status == api.HealthPassing) == (c.Output == "") {
		e.critical = c.Output
	} else if c != nil {
		e.critical = cmp.Or(c.Status, "it has no status")
	}
	return e
}
