package consul

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/consul/api"

	"github.com/ashore-mesh/ashore/internal/dnsname"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/registry"
)

// Metadata keys of exported entries, in addition to those that an importing mesh reads.
const (
	// keyOwner holds the owner of an entry. Entries of other owners are never changed or removed.
	keyOwner = "ashore-exported-by"
	// keyHost and keyNamespace identify the service in the mesh, for people.
	keyHost      = "ashore-host"
	keyNamespace = "ashore-namespace"
)

// maxMetaValue is how long a metadata value may be, in bytes. Source: Consul, agent/structs
// (metaValueMaxLength).
const maxMetaValue = 512

// exportEntry is one endpoint as it is registered in Consul.
type exportEntry struct {
	service api.AgentService
	check   api.HealthCheck // empty if Consul has none
}

// checkIDOf returns the ID of the check of an entry.
func checkIDOf(id string) string { return "ashore:" + id }

// equal reports whether two entries are the same in Consul.
func (e *exportEntry) equal(o *exportEntry) bool {
	a, b := &e.service, &o.service
	return e.check.Status == o.check.Status && e.check.Output == o.check.Output &&
		a.ID == b.ID && a.Service == b.Service && a.Address == b.Address && a.Port == b.Port &&
		a.Weights.Passing == b.Weights.Passing && slices.Equal(a.Tags, b.Tags) && maps.Equal(a.Meta, b.Meta)
}

// entries returns the wanted entries by ID, and problems of services that cannot be registered.
func (e *Exporter) entries(mesh meshState) (map[string]*exportEntry, []feed.Problem) {
	var list []*registry.Service
	for _, s := range mesh.services.All() {
		if e.exports(s) {
			list = append(list, s)
		}
	}
	slices.SortFunc(list, func(a, b *registry.Service) int { return cmp.Or(a.CompareAge(b), a.Key.Compare(b.Key)) })
	out, named, problems := map[string]*exportEntry{}, map[string]*registry.Service{}, []feed.Problem(nil)
	for _, s := range list {
		name := exportName(e.cfg.Options.Export.Name, s.Key)
		first, reason := named[name], ""
		switch {
		case !dnsname.ValidLabel(name):
			reason = "which is not a DNS name: set export.name"
		case e.taken[name]:
			reason = "which is already registered outside this mesh: set export.name"
		case first != nil:
			reason = fmt.Sprintf("as that of %s/%s: set export.name to make them differ", first.Namespace, first.Host)
		}
		if reason != "" {
			problems = append(problems, e.warning("service "+s.Namespace+"/"+s.Host,
				"is not registered in Consul: its name there would be %q, %s, or exclude it by export.except", name, reason))
			continue
		}
		named[name] = s
		for _, ep := range mesh.endpoints.At(s.Key).All() {
			// Prefer the healthy one of two endpoints with the same address and port.
			entry := entryOf(&e.cfg.Options.Export, name, s, &ep)
			if entry != nil && (out[entry.service.ID] == nil || entry.check.Status == api.HealthPassing) {
				out[entry.service.ID] = entry
			}
		}
	}
	return out, problems
}

// exports reports whether a service is registered. It must belong to the mesh and be exported to
// "*". Services from Consul are excluded. So are services relayed by other control planes: two of
// them could keep each other's copies alive.
func (e *Exporter) exports(s *registry.Service) bool {
	x, domain, to := &e.cfg.Options.Export, e.cfg.Options.Domain, s.ExportTo
	if len(to) == 0 {
		to = e.cfg.ExportTo
	}
	switch {
	case isSource(s.Source), s.Relayed, s.External, strings.HasPrefix(s.Host, "*"), len(s.Ports) == 0,
		s.Host == domain, strings.HasSuffix(s.Host, "."+domain),
		len(to) > 0 && !slices.Contains(to, "*"),
		len(x.Hosts) > 0 && !matches(x.Hosts, s.Host), matches(x.Except, s.Host),
		len(x.Namespaces) > 0 && !slices.Contains(x.Namespaces, s.Namespace):
		return false
	}
	return true
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
			CheckID: checkIDOf(id), Name: "health in the mesh", Type: "ashore", Status: api.HealthCritical,
			ServiceID: id, ServiceName: name, // Consul checks the ACL against ServiceName
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
// labels that the options name. Only listed labels with valid label values become tags, because
// workloads control their labels and Consul clients act on tags.
func tagsOf(x *ExportOptions, labels map[string]string) []string {
	out := slices.Clone(x.Tags)
	for _, k := range x.Labels {
		if v := labels[k]; metaKey(strings.ReplaceAll(v, ".", "-")) {
			out = append(out, k+"="+v)
		}
	}
	return out
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
	if p := s.Ports[0].Protocol; p != registry.Unknown {
		out[keyProtocol] = strings.ToLower(p.String())
	}
	for _, p := range s.Ports {
		key, own := keyPortPrefix+p.Name, ep.Port(p)
		if own != 0 && metaKey(key) && p.Name != "" {
			out[key] = fmt.Sprintf("%d:%d", p.Number, own)
		}
	}
	return out
}
