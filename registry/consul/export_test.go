package consul

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/consul/api"

	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/testlog"
	"github.com/ashore-mesh/ashore/registry"
)

// meshService returns a service of the mesh with an endpoint at each of these addresses.
func meshService(host, namespace string, edit func(*registry.Service), addresses ...string) registry.Instances {
	s := &registry.Service{
		Key:   registry.Key{Host: host, Namespace: namespace},
		Ports: []registry.Port{{Number: 80, Name: "http", Protocol: registry.HTTP, TargetPort: 8080}},
	}
	if edit != nil {
		edit(s)
	}
	l := &registry.EndpointList{}
	for _, a := range addresses {
		l.Items = append(l.Items, registry.Endpoint{Address: a})
	}
	return registry.Instances{Service: s, Endpoints: l}
}

// exported returns what is registered of these services, and the problems of others.
func exported(
	t *testing.T, x ExportOptions, exportTo []string, list ...registry.Instances,
) (map[string]*exportEntry, []feed.Problem) {
	t.Helper()
	x.Owner = "shop"
	e, err := NewExporter(ExporterConfig{
		Name: "test", Replica: "here", Options: Options{Export: x}, ExportTo: exportTo, Log: testlog.New(t),
	})
	if err != nil {
		t.Fatal(err)
	}
	e.taken = map[string]bool{"taken": true}
	var mesh meshState
	for _, in := range list {
		mesh.services = mesh.services.With(in.Service.Key, in.Service)
		mesh.endpoints = mesh.endpoints.With(in.Service.Key, in.Endpoints)
	}
	return e.entries(mesh)
}

// describeExported describes entries and problems, one a line.
func describeExported(entries map[string]*exportEntry, problems []feed.Problem) (out []string) {
	for _, e := range entries {
		s := e.service
		out = append(out, fmt.Sprintf("%s %s:%d of %s", s.Service, s.Address, s.Port, s.Meta[keyHost]))
	}
	for _, p := range problems {
		out = append(out, p.Object+" "+p.Text)
	}
	slices.Sort(out)
	return out
}

// Which services of the mesh are registered, and under which name.
func TestExportedServices(t *testing.T) {
	t.Parallel()
	var mesh ExportOptions
	web := func(edit func(*registry.Service)) []registry.Instances {
		return []registry.Instances{meshService("web.example", "shop", edit, "10.0.0.1")}
	}
	at := func(addresses ...string) []registry.Instances {
		return []registry.Instances{meshService("web.example", "shop", nil, addresses...)}
	}
	created := func(host string, seconds int64, address string) registry.Instances {
		return meshService(host, "shop", func(s *registry.Service) { s.Created = time.Unix(seconds, 0) }, address)
	}
	const isWeb = "web 10.0.0.1:8080 of web.example"
	tests := map[string]struct {
		x        ExportOptions
		exportTo []string
		list     []registry.Instances
		want     []string
	}{
		"several endpoints": {
			mesh, nil, at("10.0.0.1", "fd00::1", "web-1.example"),
			[]string{isWeb, "web fd00::1:8080 of web.example", "web web-1.example:8080 of web.example"},
		},
		"unreachable addresses":    {mesh, nil, at("unix:///run/web.sock", "0.0.0.0", "a b", ""), nil},
		"from a Consul source":     {mesh, nil, web(func(s *registry.Service) { s.Source = "consul:dc1" }), nil},
		"relayed":                  {mesh, nil, web(func(s *registry.Service) { s.Relayed = true }), nil},
		"outside the mesh":         {mesh, nil, web(func(s *registry.Service) { s.External = true }), nil},
		"not visible to everybody": {mesh, nil, web(func(s *registry.Service) { s.ExportTo = []string{".", "web"} }), nil},
		"not visible by default":   {mesh, []string{"."}, web(nil), nil},
		"visible despite a default": {
			mesh, []string{"."}, web(func(s *registry.Service) { s.ExportTo = []string{"*"} }), []string{isWeb},
		},
		"a host that Consul's DNS answers for": {
			mesh, nil, []registry.Instances{meshService("web.service.consul", "shop", nil, "10.0.0.1")}, nil,
		},
		"a wildcard": {mesh, nil, []registry.Instances{meshService("*.example", "shop", nil, "10.0.0.1")}, nil},
		"hosts and except": {
			ExportOptions{Hosts: []string{"*.example"}, Except: []string{"db.*"}}, nil,
			append(web(nil), meshService("db.example", "shop", nil, "10.0.0.2"),
				meshService("web.test", "shop", nil, "10.0.0.3")),
			[]string{isWeb},
		},
		"namespaces": {
			ExportOptions{Namespaces: []string{"shop"}}, nil,
			append(web(nil), meshService("db.example", "other", nil, "10.0.0.2")), []string{isWeb},
		},
		"a template for names": {
			ExportOptions{Name: "M-${namespace}-${host}"}, nil, web(nil),
			[]string{"m-shop-web-example 10.0.0.1:8080 of web.example"},
		},
		"an invalid name": {
			mesh, nil, []registry.Instances{meshService("_web.example", "shop", nil, "10.0.0.1")},
			[]string{`service shop/_web.example is not registered in Consul: its name there would be "_web", ` +
				"which is not a DNS name: set export.name, or exclude it by export.except"},
		},
		"a name that somebody else has": {
			mesh, nil, []registry.Instances{meshService("taken.example", "shop", nil, "10.0.0.1")},
			[]string{`service shop/taken.example is not registered in Consul: its name there would be "taken", ` +
				"which is already registered outside this mesh: set export.name, or exclude it by export.except"},
		},
		"one name twice": {
			mesh, nil, []registry.Instances{created("web.a", 2, "10.0.0.1"), created("web.b", 1, "10.0.0.2")},
			[]string{`service shop/web.a is not registered in Consul: its name there would be "web", as that of shop/web.b: ` +
				"set export.name to make them differ, or exclude it by export.except", "web 10.0.0.2:8080 of web.b"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := describeExported(exported(t, tc.x, tc.exportTo, tc.list...)); !slices.Equal(got, tc.want) {
				t.Errorf("got\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(tc.want, "\n\t"))
			}
		})
	}
}

// Entries of different services have different IDs. Labels, localities and networks, which
// workloads choose for themselves, make neither an entry that Consul refuses, nor a tag that other
// programs obey.
func TestEntriesOfUntrustedWorkloads(t *testing.T) {
	t.Parallel()
	untrusted := meshService("db.example", "shop", nil, "east-db1.example.com", "10.0.0.1")
	long := strings.Repeat("<", 1000)
	ep := &untrusted.Endpoints.Items[1]
	ep.Labels = map[string]string{
		"app": long, "version": "1 2", long: "x", "traefik.http.routers.x.rule": "Host(`bank.example`)",
	}
	ep.Locality, ep.Network = registry.Locality{Region: long}, long
	entries, _ := exported(t, ExportOptions{}, nil, untrusted,
		meshService("db-east.example", "shop", nil, "db1.example.com"))
	for id, e := range entries {
		tags, meta := e.service.Tags, e.service.Meta
		if len(tags) > 0 || meta[keyLocality]+meta[keyNetwork] != "" {
			t.Errorf("%s has the tags %q and the metadata %q", id, tags, meta)
		}
	}
	if len(entries) != 3 {
		t.Errorf("entries are %v", entries)
	}
}

// Another mesh reads an entry as the endpoint that it was. This mesh ignores it.
func TestEntryRoundTrip(t *testing.T) {
	t.Parallel()
	in := meshService("web.example", "shop", func(s *registry.Service) {
		s.Ports = append(s.Ports, registry.Port{Number: 9090, Name: "grpc-admin", Protocol: registry.GRPC})
	})
	in.Endpoints.Items = []registry.Endpoint{
		{
			Address: "10.0.0.1", Labels: map[string]string{"app.kubernetes.io/name": "web", "version": "1",
				"team": "x"}, Weight: 7,
			Locality: registry.Locality{Region: "eu",
				Zone: "z"}, Network: "n1", ServiceAccount: "web", TLSMode: "istio",
		},
		{Address: "10.0.0.2", Ports: map[string]uint32{"http": 81}, Health: registry.Unhealthy},
		{Address: "10.0.0.2", Ports: map[string]uint32{"http": 81}, Health: registry.Draining}, // the same address and port
	}
	x := ExportOptions{Tags: []string{"mesh"}, Labels: []string{"app.kubernetes.io/name", "version"}}
	all, _ := exported(t, x, nil, in)
	var entries []*api.ServiceEntry
	for _, id := range slices.Sorted(maps.Keys(all)) {
		e := all[id]
		s, c := e.service, e.check
		if without := (&exportEntry{service: s}); without.equal(e) {
			t.Errorf("an entry without a check equals %+v", e)
		}
		entries = append(entries, &api.ServiceEntry{
			Node: &api.Node{Node: "ashore-shop", Address: nodeAddress,
				Datacenter: "dc1"}, Service: &s, Checks: api.HealthChecks{&c},
		})
	}
	o := Options{Exported: []string{"shop"}}.withDefaults()
	got := convert(&o, place{}, "web", entries)
	if len(got.problems) > 0 || len(got.instances) != 2 {
		t.Fatalf("got %+v", got)
	}
	read := got.instances[0]
	byName := map[string]registry.Port{}
	for _, p := range read.Service.Ports {
		byName[p.Name] = p
	}
	http, admin := byName["http"], byName["grpc-admin"]
	if http.Number != 80 || http.Protocol != registry.HTTP || admin.Number != 9090 || admin.Protocol != registry.GRPC {
		t.Errorf("ports are %+v", read.Service.Ports)
	}
	labels := map[string]string{"app.kubernetes.io/name": "web", "version": "1", "mesh": "true"}
	for i, want := range []struct {
		http uint32
		ep   registry.Endpoint
	}{
		{8080, registry.Endpoint{
			Address: "10.0.0.1", Labels: labels, Weight: 7, Locality: registry.Locality{Region: "eu",
				Zone: "z"}, Network: "n1",
		}},
		{81, registry.Endpoint{
			Address: "10.0.0.2", Labels: map[string]string{"mesh": "true"}, Weight: 1, Health: registry.Unhealthy,
			Locality: registry.Locality{Region: "dc1"},
		}},
	} {
		ep := read.Endpoints.Items[i]
		if ep.Port(http) != want.http {
			t.Errorf("%s: port %d, want %d", ep.Address, ep.Port(http), want.http)
		}
		want.ep.Namespace, want.ep.Workload, want.ep.Ports = ep.Namespace, ep.Workload, ep.Ports
		if diff := cmp.Diff(want.ep, ep); diff != "" {
			t.Errorf("endpoint (-want +got):\n%s", diff)
		}
	}
	own := Options{Export: ExportOptions{Owner: "shop"}}.withDefaults()
	if got := convert(&own, place{}, "web", entries); len(got.instances) != 0 || len(got.problems) != 0 {
		t.Errorf("this mesh reads its own entries: %+v", got)
	}
}
