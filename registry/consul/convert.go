package consul

import (
	"cmp"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/hashicorp/consul/api"

	"github.com/ashore-mesh/ashore/internal/dnsname"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/registry"
)

// sourcePrefix begins the names of sources of this kind.
const sourcePrefix = "consul:"

// isSource returns whether a source is of this kind.
func isSource(name string) bool { return strings.HasPrefix(name, sourcePrefix) }

// place is where in Consul services are: what a query names.
type place struct {
	// Datacenter is empty for that of the agent.
	Datacenter string
	// Namespace and Partition are empty where there are none.
	Namespace, Partition string
}

// group names a service of this place among those of all.
func (p place) group(service string) string {
	parts := slices.DeleteFunc([]string{p.Datacenter, p.Partition, p.Namespace}, func(s string) bool { return s == "" })
	return strings.Join(append(parts, escaped(service)), "/")
}

// object names a service for people: as it is registered.
func (p place) object(service string) string {
	return "Consul service " + strings.TrimSuffix(p.group(service), escaped(service)) + service
}

// escaped is the name of a service without '/', which parts groups: Consul takes any name.
func escaped(service string) string {
	if !strings.ContainsAny(service, "/%") {
		return service
	}
	return url.PathEscape(service)
}

// converted is what one answer about one service means.
type converted struct {
	// instances has the service once for each of its hosts; empty: it is none of the mesh's.
	instances []registry.Instances
	problems  []feed.Problem
	// index is that of the answer; zero: there was none.
	index uint64
	// ids are those of all instances of the answer, in no order.
	ids []instanceID
	// nodes are the names of those that its instances run on, sorted, each once.
	nodes []string
	// failing says that some check does not pass.
	failing bool
	// virtual are addresses that Consul gave to services, by their names: a sidecar of Consul's bears that of its service.
	virtual map[string]netip.Addr
	// main is the port at which clients reach the registered ports of its instances; zero: there are none.
	main uint32
}

// converter collects what is said of one service, in one answer.
type converter struct {
	o    *Options
	at   place
	name string
	// former is the port at which clients reached the registered ports of its instances until now; zero: none is known.
	former uint32
	// nameless says that it was told that the settings give it no service account.
	nameless bool
	// portless is how many instances were left out for having no port.
	portless int

	out converted
}

// from has the services say which source has them.
func (c converted) from(name string) converted {
	for _, in := range c.instances {
		in.Service.Source = name
	}
	return c
}

// convert maps an answer about a service: a pure function. Its endpoints are in the order of nodes and IDs.
func (c converter) convert(entries []*api.ServiceEntry) converted {
	whole := c.whole(entries)
	slices.SortStableFunc(whole, func(a, b *api.ServiceEntry) int {
		return cmp.Or(cmp.Compare(a.Node.Node, b.Node.Node), cmp.Compare(a.Service.ID, b.Service.ID))
	})
	c.virtuals(whole)
	// Sidecars and gateways of Consul's own mesh speak with certificates of Consul's: they are nobody's to call.
	whole = slices.DeleteFunc(whole, func(e *api.ServiceEntry) bool { return e.Service.Kind != api.ServiceKindTypical })
	if len(whole) > 0 {
		c.service(whole)
	}
	return c.out
}

// whole leaves out what no Consul says.
func (c *converter) whole(entries []*api.ServiceEntry) []*api.ServiceEntry {
	out := make([]*api.ServiceEntry, 0, len(entries))
	for _, e := range entries {
		if e == nil || e.Node == nil || e.Service == nil {
			c.warn("", "Consul's answer has an instance without node or service: it is left out")
			continue
		}
		if owner := e.Service.Meta[keyOwner]; owner != "" && !slices.Contains(c.o.Exported, owner) {
			continue // a mesh has registered it: it has it from elsewhere, or is not wanted
		}
		if slices.Contains(e.Checks, nil) {
			one := *e
			one.Checks = slices.DeleteFunc(slices.Clone(e.Checks), func(c *api.HealthCheck) bool { return c == nil })
			e = &one
		}
		out = append(out, e)
		c.out.ids = append(c.out.ids, instanceID{e.Node.Node, e.Service.ID})
		c.out.nodes = append(c.out.nodes, e.Node.Node)
		c.out.failing = c.out.failing || e.Checks.AggregatedStatus() != api.HealthPassing
	}
	slices.Sort(c.out.nodes)
	c.out.nodes = slices.Compact(c.out.nodes)
	return out
}

// virtuals finds the addresses that Consul gave to services.
func (c *converter) virtuals(entries []*api.ServiceEntry) {
	for _, e := range entries {
		tagged, ok := e.Service.TaggedAddresses["consul-virtual"]
		if !ok || c.o.VirtualAddresses != virtualConsul {
			continue
		}
		addr, err := netip.ParseAddr(tagged.Address)
		if err != nil {
			c.warn(e.Service.ID, "its virtual address %q is no IP address: it is left out", tagged.Address)
			continue
		}
		service := c.name
		if e.Service.Proxy != nil && e.Service.Kind == api.ServiceKindConnectProxy && e.Service.Proxy.DestinationServiceName != "" {
			service = e.Service.Proxy.DestinationServiceName
		}
		if c.out.virtual == nil {
			c.out.virtual = map[string]netip.Addr{}
		}
		c.out.virtual[service] = addr
	}
}

// service makes the service, under each of its hosts, of its instances.
func (c *converter) service(entries []*api.ServiceEntry) {
	if !dnsname.ValidLabel(strings.ToLower(c.name)) {
		c.misnamed()
		return
	}
	list := c.read(entries)
	switch {
	case len(list) > 0:
	case c.portless == len(entries):
		c.refuse("has no port: it is not part of the mesh; register it with a port, or say ashore-port-NAME in its metadata")
		return
	default:
		c.refuse("has no instance that can be an endpoint: it is not part of the mesh; mend what is told of its instances")
		return
	}
	ports := c.ports(list)
	s := registry.Service{
		Ports: ports, Resolution: registry.Static,
		Object: c.at.object(c.name),
	}
	for _, in := range list {
		s.External = s.External || in.external
	}
	endpoints := c.endpoints(list, ports)
	if slices.ContainsFunc(endpoints, func(ep registry.Endpoint) bool { _, err := netip.ParseAddr(ep.Address); return err != nil }) {
		s.Resolution = registry.DNS
	}
	shared := &registry.EndpointList{Items: endpoints}
	for _, host := range hostsOf(c.o, c.at, cmp.Or(c.at.Datacenter, entries[0].Node.Datacenter), strings.ToLower(c.name)) {
		one := s
		one.Key = registry.Key{Host: host, Namespace: c.namespace()}
		c.out.instances = append(c.out.instances, registry.Instances{Service: &one, Endpoints: shared})
	}
}

// namespace is the one of the mesh that the service is in.
func (c *converter) namespace() string {
	return cmp.Or(c.o.Namespace, c.at.Namespace, "default")
}

// hostsOf are the names of a service: as Consul's DNS answers them.
// Source: Consul, "DNS reference" (service lookups; with namespaces and partitions).
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
	long, short := long+"."+o.Domain, base+in+"."+o.Domain
	switch {
	case own && (o.Hosts == hostsShort || !dnsname.ValidLabel(datacenter)):
		return []string{short}
	case !own && !dnsname.ValidLabel(datacenter):
		return nil
	case !own || o.Hosts == hostsDatacenter:
		return []string{long}
	default:
		return []string{short, long}
	}
}

func (c *converter) object() string { return c.at.object(c.name) }

// misnamed refuses a service for its name.
func (c *converter) misnamed() {
	c.refuse("is no name of DNS: it is not part of the mesh; register it under a name of letters, digits and '-'")
}

// refuse tells why a service is none of the mesh's.
func (c *converter) refuse(format string, args ...any) {
	c.problem(feed.Error, "", format, args...)
}

// warn tells of what is left out of a service; id is the instance, empty: all of them.
func (c *converter) warn(id, format string, args ...any) {
	c.problem(feed.Warning, id, format, args...)
}

// maxProblems is how many problems of one service are told; a broken one has as many as it has instances.
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
		Severity: severity, Object: c.object(), Field: field, Text: fmt.Sprintf(format, args...),
	})
}
