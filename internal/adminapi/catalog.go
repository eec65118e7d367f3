package adminapi

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/nearest"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/registry/entry"
)

// Catalog answers about services. The fields are set before use. Safe for concurrent use.
type Catalog struct {
	Published *Published
	// Supplied returns a service and the parts that it is made of.
	Supplied func(context.Context, registry.Key) (registry.Joined, bool, error)
	// Entries returns the WorkloadEntries of workloads that registered themselves.
	Entries func() entry.Entries
	// Derived is the name of the source that makes services of configuration.
	Derived string
}

// Routes returns the route of the stream that c answers.
func (c *Catalog) Routes() []admin.Route {
	return []admin.Route{admin.HandleStream(admin.StreamServices, admin.Viewer, c.Services)}
}

// Services emits the services that q selects, by host. With q.Watch it then emits
// admin.ServicesListed, and every service that changes, until ctx ends. Errors: admin.ErrNotFound if
// there is no service that q names, unless it watches; emit's.
//
// A watch compares the contexts that there were when it looked:
// what it costs is what changed, and nothing piles up while emit is busy.
func (c *Catalog) Services(ctx context.Context, q admin.ServiceQuery, emit func(admin.ServiceEvent) error) error {
	seen, replaced := c.Published.watch()
	if err := c.list(ctx, seen, q, emit); err != nil || !q.Watch {
		return err
	}
	if err := emit(admin.ServiceEvent{Event: admin.ServicesListed}); err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-replaced:
		}
		var now *push.Context
		now, replaced = c.Published.watch()
		if err := c.changes(ctx, seen, now, q, emit); err != nil {
			return err
		}
		seen = now
	}
}

// list emits all services of a context.
func (c *Catalog) list(ctx context.Context, in *push.Context, q admin.ServiceQuery,
	emit func(admin.ServiceEvent) error) error {
	none := true
	if in != nil {
		for k := range in.Inputs().Services.From(registry.Key{Host: strings.ToLower(q.Host)}) {
			if q.Host != "" && k.Host != strings.ToLower(q.Host) {
				break
			}
			if !selectsService(q, k) {
				continue
			}
			none = false
			if err := c.emit(ctx, in, k, q, emit); err != nil {
				return err
			}
		}
	}
	if none && q.Host != "" && !q.Watch {
		return admin.NewError(admin.ErrNotFound, "the mesh knows no service %q%s", joined(q.Namespace, q.Host),
			likeHost(in, q.Host))
	}
	return nil
}

// likeHost is the end of a sentence about a host that there is not.
func likeHost(in *push.Context, host string) string {
	if in == nil {
		return ": nothing is known yet; \"ashorectl sources\" shows what is waited for"
	}
	var hosts []string
	for k := range in.Inputs().Services.All() {
		if k.Host == host {
			return fmt.Sprintf(": it is in the namespace %s", k.Namespace)
		}
		if label, _, _ := strings.Cut(k.Host, "."); label == host {
			return fmt.Sprintf(": did you mean %s?", k.Host)
		}
		if len(hosts) == 0 || hosts[len(hosts)-1] != k.Host {
			hosts = append(hosts, k.Host)
		}
	}
	if near := nearest.Name(host, hosts); near != "" {
		return fmt.Sprintf(": did you mean %s?", near)
	}
	return "; \"ashorectl get services\" lists all"
}

// selectsService reports whether q selects a service.
func selectsService(q admin.ServiceQuery, k registry.Key) bool {
	return (q.Namespace == "" || q.Namespace == k.Namespace) && (q.Host == "" || strings.EqualFold(q.Host, k.Host))
}

// changes emits the services that differ between two contexts.
func (c *Catalog) changes(ctx context.Context, old, now *push.Context, q admin.ServiceQuery,
	emit func(admin.ServiceEvent) error) error {
	var before push.Inputs
	if old != nil {
		before = old.Inputs()
	}
	in, keys := now.Inputs(), map[registry.Key]bool{}
	note := func(k registry.Key) {
		if selectsService(q, k) {
			keys[k] = true
		}
	}
	for ch := range in.Services.Diff(before.Services) {
		note(ch.Key)
	}
	for ch := range in.Endpoints.Diff(before.Endpoints) {
		note(ch.Key)
	}
	for _, k := range slices.SortedFunc(maps.Keys(keys), registry.Key.Compare) {
		if err := c.emit(ctx, now, k, q, emit); err != nil {
			return err
		}
	}
	return nil
}

// emit emits the present state of a service.
func (c *Catalog) emit(ctx context.Context, in *push.Context, k registry.Key, q admin.ServiceQuery,
	emit func(admin.ServiceEvent) error) error {
	s, ok, err := c.Supplied(ctx, k)
	if err != nil {
		return err
	}
	if !ok {
		return emit(admin.ServiceEvent{Event: admin.ServiceGone,
			Service: admin.Service{Host: k.Host, Namespace: k.Namespace}})
	}
	return emit(admin.ServiceEvent{Event: admin.ServiceIs, Service: c.service(in, s, q.Endpoints)})
}

// service is a service for operators.
func (c *Catalog) service(in *push.Context, s registry.Joined, endpoints bool) admin.Service {
	svc := s.Service
	out := admin.Service{
		Host: svc.Host, Namespace: svc.Namespace, Ports: make([]admin.ServicePort, len(svc.Ports)),
		Resolution: svc.Resolution.String(), Location: "MESH_INTERNAL", ExportTo: svc.ExportTo, Labels: svc.Labels,
		SubjectAltNames: svc.SubjectAltNames, Allocated: len(svc.Addresses) == 0 && len(svc.AutoAddresses) > 0,
	}
	if svc.External {
		out.Location = "MESH_EXTERNAL"
	}
	for i, p := range svc.Ports {
		out.Ports[i] = admin.ServicePort{Number: p.Number, Name: p.Name, Protocol: p.Protocol.String()}
	}
	for _, a := range svc.VirtualIPs() {
		out.Addresses = append(out.Addresses, addressText(a))
	}
	at := 0
	for _, p := range s.Parts {
		c.part(in, &out, p, svc, s.Endpoints.All()[at:at+p.Used], endpoints)
		at += p.Used
	}
	slices.Sort(out.Identities)
	out.Identities = slices.Compact(out.Identities)
	return out
}

// addressText is a virtual address for people: a prefix where it is one.
func addressText(p netip.Prefix) string {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.String()
}

// part adds what one source has of a service: where that comes from, and its endpoints that are in
// use.
func (c *Catalog) part(in *push.Context, out *admin.Service, p registry.Part, svc *registry.Service,
	used []registry.Endpoint, endpoints bool) {
	declared := c.declaration(in.Inputs().Objects, p)
	count(out, declared, 0, p.Endpoints.Len()-p.Used)
	for i := range used {
		ep := &used[i]
		switch ep.Health {
		case registry.Healthy:
			out.Health.Healthy++
		case registry.Draining:
			out.Health.Draining++
		default:
			out.Health.Unhealthy++
		}
		if id := in.IdentityOf(ep).String(); id != "" {
			out.Identities = append(out.Identities, id)
		}
		from := c.origin(in.Inputs().Objects, p, ep, declared)
		if from.Source == declared.Source {
			count(out, declared, 1, 0)
		} else {
			count(out, admin.Place{Source: from.Source}, 1, 0)
		}
		if endpoints {
			out.Endpoints = append(out.Endpoints, endpoint(in, svc, ep, from))
		}
	}
}

// count adds endpoints to those of a source, which is listed once.
func count(out *admin.Service, at admin.Place, used, unused int) {
	i := slices.IndexFunc(out.Sources, func(s admin.ServiceSource) bool { return s.Source == at.Source })
	if i < 0 {
		i = len(out.Sources)
		out.Sources = append(out.Sources, admin.ServiceSource{Place: at})
	}
	out.Sources[i].Endpoints += used
	out.Sources[i].Unused += unused
}

// declaration is where a part of a service is declared.
func (c *Catalog) declaration(objects push.Objects, p registry.Part) admin.Place {
	if o := objectNamed(objects, p.Service.Object); o != nil {
		return c.place(o)
	}
	return admin.Place{Source: p.Source, Object: p.Service.Object}
}

// objectNamed is the object of a name as people write it, "ServiceEntry shop/web"; nil: there is
// none.
func objectNamed(objects push.Objects, text string) *config.Object {
	return objects.At(config.ParseKey(text))
}

// place is where an object was read.
func (c *Catalog) place(o *config.Object) admin.Place {
	return admin.Place{Source: o.Origin.Source, Object: o.Key.String(), File: o.Origin.File,
		Line: o.Origin.Line}
}

// origin is where an endpoint comes from: of those that configuration makes, the WorkloadEntry, the
// workload that registered itself, or the ServiceEntry that lists it.
func (c *Catalog) origin(objects push.Objects, p registry.Part, ep *registry.Endpoint,
	declared admin.Place) admin.Place {
	if p.Source != c.Derived {
		return declared
	}
	key := config.Key{Kind: config.WorkloadEntry, Namespace: ep.Namespace, Name: ep.Workload}
	for _, all := range []push.Objects{objects, c.Entries()} {
		if o := all.At(key); o != nil && o.Spec.(*networking.WorkloadEntry).Address == ep.Address {
			return c.place(o)
		}
	}
	key.Kind = config.ServiceEntry
	if o := objects.At(key); o != nil {
		return c.place(o)
	}
	return declared
}

// endpoint is an endpoint for operators.
func endpoint(in *push.Context, svc *registry.Service, ep *registry.Endpoint, from admin.Place) admin.Endpoint {
	out := admin.Endpoint{
		Address: ep.Address, Ports: make([]admin.EndpointPort, 0, len(svc.Ports)), Health: ep.Health.String(),
		Identity: in.IdentityOf(ep).String(), ServiceAccount: ep.ServiceAccount, Namespace: ep.Namespace,
		Workload: ep.Workload, TLSMode: ep.TLSMode, Locality: ep.Locality.String(), Network: ep.Network,
		Weight: cmp.Or(ep.Weight, 1), Labels: ep.Labels, From: from,
	}
	for _, p := range svc.Ports {
		if n := ep.Port(p); n != 0 {
			out.Ports = append(out.Ports, admin.EndpointPort{Service: p.Number, Name: p.Name, Number: n})
			state := ep.States.At(n)
			if state == registry.PortClosed || state == registry.PortLoopback {
				out.NotServed = append(out.NotServed, n)
			}
		}
	}
	return out
}
