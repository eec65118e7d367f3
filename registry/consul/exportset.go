package consul

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/ashore-mesh/ashore/internal/dnsname"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/pmap"
	"github.com/ashore-mesh/ashore/registry"
)

// Services and Endpoints are those of the mesh, by key.
type (
	Services  = pmap.Map[registry.Key, *registry.Service]
	Endpoints = pmap.Map[registry.Key, *registry.EndpointList]
)

// exportSet is what should be registered in Consul for the services of the mesh. It is pure state, without I/O. The cost of a change
// does not depend on the number of services.
type exportSet struct {
	x        *ExportOptions // immutable
	domain   string         // immutable; of hosts that Consul itself answers for
	exportTo []string       // immutable; the default for services without exportTo

	services  Services
	endpoints Endpoints
	names     map[registry.Key]string         // the name in Consul of each exported service
	keys      map[string][]registry.Key       // the services of each name; the first, the oldest, is registered
	wanted    map[string]map[string]exported  // what should be registered, by name and ID
	problems  map[registry.Key][]feed.Problem // by service
	changed   map[string]bool                 // names whose entries may have changed since the last call of take
}

func newExportSet(o *Options, exportTo []string) *exportSet {
	return &exportSet{
		x: &o.Export, domain: o.Domain, exportTo: exportTo, names: map[registry.Key]string{}, keys: map[string][]registry.Key{},
		wanted: map[string]map[string]exported{}, problems: map[registry.Key][]feed.Problem{}, changed: map[string]bool{},
	}
}

// take replaces the services and endpoints of the mesh.
func (f *exportSet) take(services Services, endpoints Endpoints) {
	changed := map[registry.Key]bool{}
	for ch := range services.Diff(f.services) {
		changed[ch.Key] = true
	}
	for ch := range endpoints.Diff(f.endpoints) {
		changed[ch.Key] = true
	}
	f.services, f.endpoints = services, endpoints
	names := map[string]bool{}
	for k := range changed { // all old names go before new ones come: two services may swap names
		if name, ok := f.names[k]; ok {
			names[name] = true
			f.unname(k, name)
		}
	}
	for k := range changed {
		f.name(k)
		if name, ok := f.names[k]; ok {
			names[name] = true
		}
	}
	for name := range names {
		f.choose(name)
	}
}

// unname removes the name of a service.
func (f *exportSet) unname(k registry.Key, name string) {
	delete(f.names, k)
	f.keys[name] = slices.DeleteFunc(f.keys[name], func(o registry.Key) bool { return o == k })
	if len(f.keys[name]) == 0 {
		delete(f.keys, name)
	}
}

// name gives an exported service its name in Consul.
func (f *exportSet) name(k registry.Key) {
	delete(f.problems, k)
	s := f.services.At(k)
	if s == nil || !f.exports(s) {
		return
	}
	name := exportName(f.x.Name, k)
	if !dnsname.ValidLabel(name) {
		f.problem(k, "its name there would be %q, which is not a DNS name: set export.name, or exclude it by export.except", name)
		return
	}
	f.names[k] = name
	f.keys[name] = append(f.keys[name], k)
	slices.SortFunc(f.keys[name], func(a, b registry.Key) int {
		return cmp.Or(f.services.At(a).CompareAge(f.services.At(b)), a.Compare(b))
	})
}

// exports reports whether a service belongs to the mesh and is visible to everybody. What Consul has is not registered there again:
// neither services of a Consul source, nor hosts that Consul's DNS answers for. Services relayed by other control planes are in
// a registry already, and two control planes could keep each other's copies alive.
func (f *exportSet) exports(s *registry.Service) bool {
	to := s.ExportTo
	if len(to) == 0 {
		to = f.exportTo
	}
	switch {
	case isSource(s.Source), s.Relayed, s.External, strings.HasPrefix(s.Host, "*"), len(s.Ports) == 0:
		return false
	case s.Host == f.domain || strings.HasSuffix(s.Host, "."+f.domain):
		return false
	case len(to) > 0 && !slices.Contains(to, "*"):
		return false
	}
	return f.x.chosen(s.Key)
}

// choose finds the entries of a name: the endpoints of its oldest service.
func (f *exportSet) choose(name string) {
	f.changed[name] = true
	keys := f.keys[name]
	if len(keys) == 0 {
		delete(f.wanted, name)
		return
	}
	first := keys[0]
	entries := entriesOf(f.x, name, f.services.At(first), f.endpoints.At(first).All())
	if len(entries) == 0 {
		delete(f.wanted, name)
	} else {
		f.wanted[name] = entries
	}
	delete(f.problems, first)
	for _, k := range keys[1:] {
		delete(f.problems, k)
		f.problem(k, "its name there would be %q, as that of %s/%s: set export.name to make them differ, or exclude one by export.except", name, first.Namespace, first.Host)
	}
}

func (f *exportSet) problem(k registry.Key, format string, args ...any) {
	f.problems[k] = append(f.problems[k], feed.Problem{
		Severity: feed.Warning, Object: "service " + k.Namespace + "/" + k.Host, Text: "is not registered in Consul: " + fmt.Sprintf(format, args...),
	})
}
