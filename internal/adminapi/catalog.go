package adminapi

import (
	"cmp"
	"context"
	"net/netip"
	"path"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
)

// Services returns the services that q selects, by host. Errors: admin.ErrNotFound if q names a
// host and there is no such service.
func (a *API) Services(ctx context.Context, q admin.ServiceQuery) ([]admin.Service, error) {
	out := []admin.Service{}
	if in := a.Published(); in != nil {
		for k := range in.Inputs().Services.From(registry.Key{Host: strings.ToLower(q.Host)}) {
			if q.Host != "" && k.Host != strings.ToLower(q.Host) {
				break
			}
			if q.Namespace != "" && q.Namespace != k.Namespace {
				continue
			}
			s, found, err := a.Assembler.Supplied(ctx, k)
			if err != nil {
				return nil, err
			}
			if found {
				out = append(out, a.service(in, s, q.Endpoints))
			}
		}
	}
	if q.Host != "" && len(out) == 0 {
		return nil, notFound("the mesh knows no service %q: \"ashorectl get services\" lists all",
			path.Join(q.Namespace, q.Host))
	}
	return out, nil
}

// service is a service for operators.
func (a *API) service(in *push.Context, s registry.Joined, endpoints bool) admin.Service {
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
	for _, ip := range svc.VirtualIPs() {
		out.Addresses = append(out.Addresses, addressText(ip))
	}
	at := 0
	for _, p := range s.Parts {
		a.part(in, &out, p, svc, s.Endpoints.All()[at:at+p.Used], endpoints)
		at += p.Used
	}
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
func (a *API) part(in *push.Context, out *admin.Service, p registry.Part, svc *registry.Service,
	used []registry.Endpoint, endpoints bool) {
	objects := in.Inputs().Objects
	declared := admin.Place{Source: p.Source, Object: p.Service.Object}
	if o := objects.At(config.ParseKey(p.Service.Object)); o != nil {
		declared = placeOf(o)
	}
	count(out, declared, 0)
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
		from := declared
		if p.Source == a.Derived {
			from = cmp.Or(a.entry(objects, ep), declared)
		}
		count(out, from, 1)
		if endpoints {
			out.Endpoints = append(out.Endpoints, endpoint(in, svc, ep, from))
		}
	}
}

// count adds endpoints to those of a source, which is listed once.
func count(out *admin.Service, at admin.Place, endpoints int) {
	i := slices.IndexFunc(out.Sources, func(s admin.ServiceSource) bool { return s.Source == at.Source })
	if i < 0 {
		i = len(out.Sources)
		out.Sources = append(out.Sources, admin.ServiceSource{Place: at})
	}
	out.Sources[i].Endpoints += endpoints
}

// placeOf is where an object was read.
func placeOf(o *config.Object) admin.Place {
	return admin.Place{Source: o.Origin.Source, Object: o.Key.String(), File: o.Origin.File,
		Line: o.Origin.Line}
}

// entry is the WorkloadEntry of an endpoint, written or registered; zero if it has none.
func (a *API) entry(objects push.Objects, ep *registry.Endpoint) admin.Place {
	key := config.Key{Kind: config.WorkloadEntry, Namespace: ep.Namespace, Name: ep.Workload}
	for _, all := range []push.Objects{objects, a.Entries()} {
		if o := all.At(key); o != nil && o.Spec.(*networking.WorkloadEntry).Address == ep.Address {
			return placeOf(o)
		}
	}
	return admin.Place{}
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
