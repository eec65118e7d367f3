package consul

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/hashicorp/consul/api"

	"github.com/ashore-mesh/ashore/internal/dnsname"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/registry"
)

// isSource reports whether a source is of this kind.
func isSource(name string) bool { return name == "consul" || strings.HasPrefix(name, "consul:") }

// place identifies the services that one query covers.
type place struct {
	// Datacenter is a name, or empty for the datacenter of the agent.
	Datacenter string
	// Namespace and Partition are those of Consul Enterprise, or empty.
	Namespace, Partition string
}

// group returns the name of the feed group of a service.
func (p place) group(service string) string {
	if strings.ContainsAny(service, "/%") { // Consul accepts any name
		service = url.PathEscape(service)
	}
	return strings.Join(append(p.parts(), service), "/")
}

// object returns the name of a service in problems.
func (p place) object(service string) string {
	return "Consul service " + strings.Join(append(p.parts(), service), "/")
}

// parts returns the datacenter, partition and namespace, without those that are empty.
func (p place) parts() []string {
	return slices.DeleteFunc([]string{p.Datacenter, p.Partition, p.Namespace}, func(s string) bool { return s == "" })
}

// title returns the name of a place in problems.
func (p place) title() string {
	if p.Datacenter == "" {
		p.Datacenter = "agent's datacenter"
	} else {
		p.Datacenter = "datacenter " + p.Datacenter
	}
	return strings.Join(p.parts(), ", ")
}

// converted is one service after conversion.
type converted struct {
	// instances has one entry per host name. Empty if the service is not usable.
	instances []registry.Instances
	problems  []feed.Problem
	// ids maps every instance, usable or not, to its ModifyIndex.
	ids map[instanceID]uint64
}

// instanceID identifies an instance in a datacenter.
type instanceID struct{ node, id string }

// converter converts one answer about one service. It is a pure function of its input.
type converter struct {
	o      *Options
	at     place
	name   string
	source string // the name of the source

	out converted
}

// convert converts one answer. It reorders entries in place.
// Endpoints are sorted by node and ID.
func (c *converter) convert(entries []*api.ServiceEntry) converted {
	entries = slices.DeleteFunc(entries, func(e *api.ServiceEntry) bool {
		owner := e.Service.Meta[keyOwner]
		return owner != "" && !slices.Contains(c.o.Exported, owner)
	})
	slices.SortStableFunc(entries, func(a, b *api.ServiceEntry) int {
		return cmp.Or(cmp.Compare(a.Node.Node, b.Node.Node), cmp.Compare(a.Service.ID, b.Service.ID))
	})
	c.out.ids = make(map[instanceID]uint64, len(entries))
	for _, e := range entries {
		c.out.ids[instanceID{e.Node.Node, e.Service.ID}] = e.Service.ModifyIndex
	}
	// Skip Consul Connect proxies and gateways: they only accept Consul certificates.
	entries = slices.DeleteFunc(entries,
		func(e *api.ServiceEntry) bool { return e.Service.Kind != api.ServiceKindTypical })
	if len(entries) > 0 {
		c.service(entries)
	}
	return c.out
}

// service converts the instances, and adds the service under each of its hosts.
func (c *converter) service(entries []*api.ServiceEntry) {
	if !dnsname.ValidLabel(strings.ToLower(c.name)) {
		c.problem(feed.Error, "", "has a name that is not a DNS label, so it is not part of the mesh: "+
			"use letters, digits and '-'")
		return
	}
	list := c.read(entries)
	if len(list) == 0 {
		c.problem(feed.Error, "", "has no instance that can be an endpoint, so it is not part of the mesh: "+
			"see the problems of each")
		return
	}
	ports := c.ports(list)
	s := registry.Service{
		Ports: ports, Resolution: registry.Static, AutoAddress: c.o.Allocates(),
		Source: c.source, Object: c.at.object(c.name),
	}
	for _, in := range list {
		s.External = s.External || in.external
	}
	endpoints := c.endpoints(list, ports)
	if slices.ContainsFunc(endpoints, registry.Endpoint.HasName) {
		s.Resolution = registry.DNS
	}
	shared := &registry.EndpointList{Items: endpoints}
	datacenter := cmp.Or(c.at.Datacenter, entries[0].Node.Datacenter)
	for _, host := range hostsOf(c.o, c.at, datacenter, strings.ToLower(c.name)) {
		one := s
		one.Key = registry.Key{Host: host, Namespace: c.namespace()}
		c.out.instances = append(c.out.instances, registry.Instances{Service: &one, Endpoints: shared})
	}
}

// namespace returns the namespace of the service in the mesh.
func (c *converter) namespace() string { return cmp.Or(c.o.Namespace, c.at.Namespace, "default") }

// hostsOf returns the Consul DNS names of a service. Source: Consul, "DNS reference" (service
// lookups; with namespaces and partitions).
func hostsOf(o *Options, at place, datacenter, name string) []string {
	base, own := name+".service", at.Datacenter == ""
	in := ""
	if at.Namespace != "" && at.Namespace != "default" {
		in += "." + at.Namespace + ".ns"
	}
	if at.Partition != "" && at.Partition != "default" {
		in += "." + at.Partition + ".ap"
	}
	long := base + in + "." + datacenter
	if in != "" {
		long += ".dc"
	}
	named := dnsname.ValidLabel(datacenter)
	var out []string
	if own && (o.Hosts != hostsDatacenter || !named) {
		out = append(out, base+in+"."+o.Domain)
	}
	if named && (o.Hosts != hostsShort || !own) {
		out = append(out, long+"."+o.Domain)
	}
	return out
}

// warn adds a warning about an instance, or about the service if id is empty.
func (c *converter) warn(id, format string, args ...any) {
	c.problem(feed.Warning, id, format, args...)
}

// maxProblems bounds the problems of one service.
const maxProblems = 10

func (c *converter) problem(severity feed.Severity, id, format string, args ...any) {
	if len(c.out.problems) >= maxProblems {
		return
	}
	field := ""
	if id != "" {
		field = "instance " + id
	}
	c.out.problems = append(c.out.problems, feed.Problem{
		Severity: severity, Object: c.at.object(c.name), Field: field, Text: fmt.Sprintf(format, args...),
	})
}
