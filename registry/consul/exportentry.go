package consul

import (
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
	// keyOwner holds the owner of an entry. An entry without it, or with another owner, is never
	// written or removed.
	keyOwner = "ashore-exported-by"
	// keyHost and keyNamespace identify the service in the mesh, for people.
	keyHost      = "ashore-host"
	keyNamespace = "ashore-namespace"
)

// maxMetaValue and maxLabelValue are the maximum lengths of a metadata value and of a label value,
// in bytes.
// Sources: Consul, agent/structs (metaValueMaxLength); Kubernetes, labels.
const maxMetaValue, maxLabelValue = 512, 63

// exportEntry is one endpoint as it is registered in Consul.
type exportEntry struct {
	service api.AgentService
	check   api.HealthCheck // empty if Consul has none
}

// checkIDOf returns the ID of the check of an entry.
func checkIDOf(id string) string { return "ashore:" + id }

// equal reports whether two entries are the same in Consul.
func (e *exportEntry) equal(o *exportEntry) bool {
	return e.sameService(o) && e.check.Status == o.check.Status && e.check.Output == o.check.Output
}

// sameService is equal without the check.
func (e *exportEntry) sameService(o *exportEntry) bool {
	a, b := &e.service, &o.service
	return a.ID == b.ID && a.Service == b.Service && a.Address == b.Address && a.Port == b.Port &&
		a.Weights.Passing == b.Weights.Passing && slices.Equal(a.Tags, b.Tags) && maps.Equal(a.Meta, b.Meta)
}

// entriesOf returns the entries of a service under a name, by ID. Of two endpoints with one address
// and port it prefers a healthy one.
func entriesOf(x *ExportOptions, name string, s *registry.Service, list []registry.Endpoint) map[string]*exportEntry {
	out := map[string]*exportEntry{}
	for i := range list {
		e := entryOf(x, name, s, &list[i])
		if e == nil {
			continue
		}
		old := out[e.service.ID]
		if old == nil || old.check.Status != api.HealthPassing {
			out[e.service.ID] = e
		}
	}
	return out
}

// entryOf returns the entry of an endpoint; nil if no client outside the mesh could reach it.
func entryOf(x *ExportOptions, name string, s *registry.Service, ep *registry.Endpoint) *exportEntry {
	address := ep.Address
	if a, err := netip.ParseAddr(address); err == nil {
		address = a.Unmap().WithZone("").String()
		if a.IsUnspecified() {
			return nil
		}
	} else if !dnsname.Valid(address) {
		return nil
	}
	port := int(ep.Port(s.Ports[0]))
	if port < 1 || port > 65535 {
		return nil
	}
	id, weight := name+":"+address+":"+strconv.Itoa(port), int(min(max(1, ep.Weight), maxWeight))
	e := &exportEntry{
		service: api.AgentService{
			ID: id, Service: name, Address: address, Port: port, Tags: tagsOf(x, ep.Labels), Meta: metaOf(x, s, ep),
			Weights: api.AgentWeights{Passing: weight, Warning: weight},
		},
		check: api.HealthCheck{
			CheckID: checkIDOf(id), Name: "health in the mesh", Type: "ashore", ServiceID: id, ServiceName: name,
			Status: api.HealthCritical,
		},
	}
	switch ep.Health {
	case registry.Healthy:
		e.check.Status = api.HealthPassing
	case registry.Draining:
		e.check.Output = "draining: the mesh sends it no new requests"
	default:
		e.check.Output = "unhealthy in the mesh"
	}
	return e
}

// tagsOf returns the tags of an entry: those of the options, and "key=value" for the endpoint's
// labels that the options name. Workloads choose their own labels and programs outside the mesh act
// on tags, so no other labels become tags.
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

// metaOf returns the metadata of an entry. Identities are left out: the readers are outside the
// mesh.
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

// maxMeta is how many metadata pairs Consul accepts. Source: Consul, agent/structs
// (metaMaxKeyPairs).
const maxMeta = 64
