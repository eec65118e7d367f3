package consul

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ashore-mesh/ashore/internal/dnsname"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/pmap"
	"github.com/ashore-mesh/ashore/registry"
)

// Services and Endpoints are those of the mesh.
type (
	Services  = pmap.Map[registry.Key, *registry.Service]
	Endpoints = pmap.Map[registry.Key, *registry.EndpointList]
)

// offers are the services of the mesh that are to be found in Consul. A pure state: it asks nobody. What it costs to take in
// a change is the change's.
type offers struct {
	// the following are set once
	x        *ExportOptions
	domain   string   // of hosts that are Consul's
	exportTo []string // of services that say nothing
	number   int      // of the node whose names these are

	services  Services
	endpoints Endpoints
	names     map[registry.Key]string         // what services are called in Consul
	keys      map[string][]registry.Key       // and who is called so, who counts first
	offered   map[string]map[string]exported  // by name and ID, of who counts
	problems  map[registry.Key][]feed.Problem // of services
	touched   map[string]bool                 // names whose entries may have changed
}

func newOffers(o *Options, exportTo []string, number int) *offers {
	return &offers{
		x: &o.Export, domain: o.Domain, exportTo: exportTo, number: number, names: map[registry.Key]string{}, keys: map[string][]registry.Key{},
		offered: map[string]map[string]exported{}, problems: map[registry.Key][]feed.Problem{}, touched: map[string]bool{},
	}
}

// take takes in what the mesh has now.
func (f *offers) take(services Services, endpoints Endpoints) {
	changed := map[registry.Key]bool{}
	for ch := range services.Diff(f.services) {
		changed[ch.Key] = true
	}
	for ch := range endpoints.Diff(f.endpoints) {
		changed[ch.Key] = true
	}
	f.services, f.endpoints = services, endpoints
	anew := map[string]bool{}
	for k := range changed { // first: what shares a name with one that is new may be gone
		if name, ok := f.names[k]; ok {
			anew[name] = true
			f.unname(k, name)
		}
	}
	for k := range changed {
		f.name(k)
		if name, ok := f.names[k]; ok {
			anew[name] = true
		}
	}
	for name := range anew {
		f.offer(name)
	}
}

// unname forgets what a service is called.
func (f *offers) unname(k registry.Key, name string) {
	delete(f.names, k)
	f.keys[name] = slices.DeleteFunc(f.keys[name], func(o registry.Key) bool { return o == k })
	if len(f.keys[name]) == 0 {
		delete(f.keys, name)
	}
}

// name finds what a service that has no name is called in Consul, if it is to be there.
func (f *offers) name(k registry.Key) {
	delete(f.problems, k)
	s := f.services.At(k)
	if s == nil || !f.exports(s) {
		return
	}
	name := exportName(f.x.Name, k)
	if !dnsname.ValidLabel(name) {
		if f.number == 0 {
			f.problem(k, "would be called %q in Consul, which is no name of DNS: set export.name, or leave it out by export.except", name)
		}
		return
	}
	if f.x.at(name) != f.number {
		return
	}
	f.names[k] = name
	f.keys[name] = append(f.keys[name], k)
	slices.SortFunc(f.keys[name], func(a, b registry.Key) int {
		return cmp.Or(f.services.At(a).CompareAge(f.services.At(b)), a.Compare(b))
	})
}

// exports says whether a service is one of the mesh's own that everybody may see. What Consul has is never registered there
// again: neither services of a source of Consul's, nor hosts that Consul's DNS answers for. Nor is what other control planes' registries
// know: it is in one of them, which may be this one, and two that take from one another would each keep alive what the other registered.
func (f *offers) exports(s *registry.Service) bool {
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

// offer finds what stands under a name: the endpoints of the oldest service that is called so.
func (f *offers) offer(name string) {
	f.touched[name] = true
	keys := f.keys[name]
	if len(keys) == 0 {
		delete(f.offered, name)
		return
	}
	first := keys[0]
	entries := entriesOf(f.x, name, f.services.At(first), f.endpoints.At(first).All())
	if len(entries) == 0 {
		delete(f.offered, name)
	} else {
		f.offered[name] = entries
	}
	delete(f.problems, first)
	for _, k := range keys[1:] {
		delete(f.problems, k)
		f.problem(k, "would be called %q in Consul as %s/%s is: set export.name to tell them apart, or leave one out by export.except", name, first.Namespace, first.Host)
	}
}

// all are the names under which something stands.
func (f *offers) all() []string { return slices.Sorted(maps.Keys(f.offered)) }

func (f *offers) problem(k registry.Key, format string, args ...any) {
	f.problems[k] = append(f.problems[k], feed.Problem{
		Severity: feed.Warning, Object: "service " + k.Namespace + "/" + k.Host, Text: "is not registered in Consul: it " + fmt.Sprintf(format, args...),
	})
}
