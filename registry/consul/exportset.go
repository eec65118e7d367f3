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

// exportedService is one service of the mesh with its entries in Consul, by their IDs.
type exportedService struct {
	service   *registry.Service
	endpoints *registry.EndpointList
	entries   map[string]*exportEntry
}

// exportSet selects what is registered in Consul.
type exportSet struct {
	o        *Options
	exportTo []string // the default for services without exportTo
}

// services returns the services to register, by their names in Consul, and the problems of others.
// former is the last result: services that are unchanged since keep their entries.
func (x exportSet) services(
	services Services, endpoints Endpoints, former map[string]*exportedService,
) (map[string]*exportedService, []feed.Problem) {
	var problems []feed.Problem
	byName := map[string][]*registry.Service{}
	for k, s := range services.All() {
		if !x.exports(s) {
			continue
		}
		name := exportName(x.o.Export.Name, k)
		if dnsname.ValidLabel(name) {
			byName[name] = append(byName[name], s)
			continue
		}
		problems = append(problems, notRegistered(s, "its name there would be %q, which is not a DNS name: "+
			"set export.name, or exclude it by export.except", name))
	}
	out := make(map[string]*exportedService, len(byName))
	for name, list := range byName {
		slices.SortFunc(list, func(a, b *registry.Service) int { return cmp.Or(a.CompareAge(b), a.Key.Compare(b.Key)) })
		first := list[0]
		for _, s := range list[1:] {
			problems = append(problems, notRegistered(s, "its name there would be %q, as that of %s/%s: "+
				"set export.name to make them differ, or exclude one by export.except", name, first.Namespace, first.Host))
		}
		l := endpoints.At(first.Key)
		out[name] = former[name]
		if old := former[name]; old == nil || old.service != first || old.endpoints != l {
			out[name] = &exportedService{first, l, entriesOf(&x.o.Export, name, first, l.All())}
		}
	}
	return out, problems
}

// exports reports whether a service belongs to the mesh and is visible to everybody. What is in
// Consul is not registered there again: neither services of a Consul source, nor hosts of Consul's
// DNS. Services relayed by other control planes are in a registry already, and two control planes
// could keep each other's copies alive.
func (x exportSet) exports(s *registry.Service) bool {
	to := s.ExportTo
	if len(to) == 0 {
		to = x.exportTo
	}
	switch {
	case isSource(s.Source), s.Relayed, s.External, strings.HasPrefix(s.Host, "*"), len(s.Ports) == 0:
		return false
	case s.Host == x.o.Domain || strings.HasSuffix(s.Host, "."+x.o.Domain):
		return false
	case len(to) > 0 && !slices.Contains(to, "*"):
		return false
	}
	return x.o.Export.chosen(s.Key)
}

// notRegistered returns the problem of a service that is not registered in Consul.
func notRegistered(s *registry.Service, format string, args ...any) feed.Problem {
	return feed.Problem{
		Severity: feed.Warning, Object: "service " + s.Namespace + "/" + s.Host,
		Text: "is not registered in Consul: " + fmt.Sprintf(format, args...),
	}
}
