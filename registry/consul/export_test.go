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

	"github.com/ashore-mesh/ashore/registry"
)

// meshService is a service of the mesh with an endpoint at each of these addresses.
func meshService(host, namespace string, edit func(*registry.Service), addresses ...string) registry.Instances {
	s := &registry.Service{Key: registry.Key{Host: host, Namespace: namespace}, Ports: []registry.Port{{Number: 80, Name: "http", Protocol: registry.HTTP, TargetPort: 8080}}}
	if edit != nil {
		edit(s)
	}
	l := &registry.EndpointList{}
	for _, a := range addresses {
		l.Items = append(l.Items, registry.Endpoint{Address: a})
	}
	return registry.Instances{Service: s, Endpoints: l}
}

// offered takes in services, and returns what of them stands where.
func offered(x ExportOptions, exportTo []string, list ...registry.Instances) (*exportSet, []string) {
	o := Options{Export: x}.withDefaults()
	f := newExportSet(&o, exportTo)
	var services Services
	var endpoints Endpoints
	for _, in := range list {
		services, endpoints = services.With(in.Service.Key, in.Service), endpoints.With(in.Service.Key, in.Endpoints)
	}
	f.take(services, endpoints)
	return f, f.shown()
}

// What another control plane's registry knows is not registered: it would keep what that took from here there for ever.
func TestOfferedRelayed(t *testing.T) {
	t.Parallel()
	relayed := meshService("web.service.dc2.example", "shop", func(s *registry.Service) { s.Relayed = true }, "10.9.9.9")
	if _, got := offered(ExportOptions{Owner: "shop"}, nil, relayed); len(got) > 0 {
		t.Errorf("offered are %v", got)
	}
	_, got := offered(ExportOptions{Owner: "shop"}, nil, meshService("web.shop.example", "shop", nil, "10.0.0.1"), relayed)
	if want := []string{"web 10.0.0.1:8080 of web.shop.example"}; !slices.Equal(got, want) {
		t.Errorf("beside one that is declared: %v, want %v", got, want)
	}
}

// shown is what is offered, and what is wrong.
func (f *exportSet) shown() []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(f.wanted)) {
		for _, id := range slices.Sorted(maps.Keys(f.wanted[name])) {
			e := f.wanted[name][id]
			line := fmt.Sprintf("%s %s:%d of %s", e.name, e.address, e.port, e.meta[keyHost])
			if e.critical != "" {
				line += " critical"
			}
			out = append(out, line)
		}
	}
	for _, k := range slices.SortedFunc(maps.Keys(f.problems), registry.Key.Compare) {
		for _, p := range f.problems[k] {
			out = append(out, p.Object+": "+p.Text)
		}
	}
	return out
}

// Which services of the mesh are registered, and under which name.
func TestOffers(t *testing.T) {
	t.Parallel()
	mesh := ExportOptions{Owner: "shop"}
	old := func(s *registry.Service) { s.Created = time.Unix(1, 0) }
	young := func(s *registry.Service) { s.Created = time.Unix(2, 0) }
	tests := map[string]struct {
		x        ExportOptions
		exportTo []string
		list     []registry.Instances
		want     []string
	}{
		"a service":                   {mesh, nil, []registry.Instances{meshService("web.example", "shop", nil, "10.0.0.1", "10.0.0.2")}, []string{"web 10.0.0.1:8080 of web.example", "web 10.0.0.2:8080 of web.example"}},
		"an IPv6 address and a name":  {mesh, nil, []registry.Instances{meshService("web.example", "shop", nil, "fd00::1", "web-1.example")}, []string{"web fd00::1:8080 of web.example", "web web-1.example:8080 of web.example"}},
		"nobody could reach them":     {mesh, nil, []registry.Instances{meshService("web.example", "shop", nil, "unix:///run/web.sock", "0.0.0.0", "a b", "")}, nil},
		"a source of Consul's":        {mesh, nil, []registry.Instances{meshService("web.example", "shop", func(s *registry.Service) { s.Source = "consul:dc1" }, "10.0.0.1")}, nil},
		"a host of Consul's":          {mesh, nil, []registry.Instances{meshService("web.service.consul", "shop", nil, "10.0.0.1")}, nil},
		"outside the mesh":            {mesh, nil, []registry.Instances{meshService("web.example", "shop", func(s *registry.Service) { s.External = true }, "10.0.0.1")}, nil},
		"a wildcard":                  {mesh, nil, []registry.Instances{meshService("*.example", "shop", nil, "10.0.0.1")}, nil},
		"not everybody sees it":       {mesh, nil, []registry.Instances{meshService("web.example", "shop", func(s *registry.Service) { s.ExportTo = []string{".", "web"} }, "10.0.0.1")}, nil},
		"by default not everybody":    {mesh, []string{"."}, []registry.Instances{meshService("web.example", "shop", nil, "10.0.0.1"), meshService("db.example", "shop", func(s *registry.Service) { s.ExportTo = []string{"*"} }, "10.0.0.2")}, []string{"db 10.0.0.2:8080 of db.example"}},
		"hosts and those that do not": {ExportOptions{Owner: "shop", Hosts: []string{"*.example"}, Except: []string{"db.*"}}, nil, []registry.Instances{meshService("web.example", "shop", nil, "10.0.0.1"), meshService("db.example", "shop", nil, "10.0.0.2"), meshService("web.test", "shop", nil, "10.0.0.3")}, []string{"web 10.0.0.1:8080 of web.example"}},
		"namespaces":                  {ExportOptions{Owner: "shop", Namespaces: []string{"a"}}, nil, []registry.Instances{meshService("web.example", "a", nil, "10.0.0.1"), meshService("db.example", "b", nil, "10.0.0.2")}, []string{"web 10.0.0.1:8080 of web.example"}},
		"a name of their own":         {ExportOptions{Owner: "shop", Name: "M-${namespace}-${host}"}, nil, []registry.Instances{meshService("web.example", "a", nil, "10.0.0.1")}, []string{"m-a-web-example 10.0.0.1:8080 of web.example"}},
		"a name that is none":         {mesh, nil, []registry.Instances{meshService("_web.example", "shop", nil, "10.0.0.1")}, []string{`service shop/_web.example: is not registered in Consul: its name there would be "_web", which is not a DNS name: set export.name, or exclude it by export.except`}},
		"one name twice: the older counts": {mesh, nil, []registry.Instances{meshService("web.a", "shop", young, "10.0.0.1"), meshService("web.b", "shop", old, "10.0.0.2")},
			[]string{"web 10.0.0.2:8080 of web.b", `service shop/web.a: is not registered in Consul: its name there would be "web", as that of shop/web.b: set export.name to make them differ, or exclude one by export.except`}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, got := offered(tc.x, tc.exportTo, tc.list...); !slices.Equal(got, tc.want) {
				t.Errorf("got\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(tc.want, "\n\t"))
			}
		})
	}
}

// Taking in one change after another leads to what taking in everything at once does, and touches the names that it is about
// alone.
func TestOffersFollow(t *testing.T) {
	t.Parallel()
	f, _ := offered(ExportOptions{Owner: "shop"}, nil)
	var services Services
	var endpoints Endpoints
	step := func(in registry.Instances, there bool, touched ...string) {
		t.Helper()
		services, endpoints = services.Without(in.Service.Key), endpoints.Without(in.Service.Key)
		if there {
			services, endpoints = services.With(in.Service.Key, in.Service), endpoints.With(in.Service.Key, in.Endpoints)
		}
		clear(f.changed)
		f.take(services, endpoints)
		var all []registry.Instances
		for k, s := range services.All() {
			all = append(all, registry.Instances{Service: s, Endpoints: endpoints.At(k)})
		}
		if _, want := offered(ExportOptions{Owner: "shop"}, nil, all...); !slices.Equal(f.shown(), want) {
			t.Errorf("got\n\t%s\nwant\n\t%s", strings.Join(f.shown(), "\n\t"), strings.Join(want, "\n\t"))
		}
		if got := slices.Sorted(maps.Keys(f.changed)); !slices.Equal(got, touched) {
			t.Errorf("touched %q, want %q", got, touched)
		}
	}
	step(meshService("web.b", "shop", nil, "10.0.0.1"), true, "web")
	step(meshService("db.b", "shop", nil, "10.0.0.2"), true, "db")
	step(meshService("web.a", "shop", nil, "10.0.0.3"), true, "web") // comes before the other
	step(meshService("web.a", "shop", nil, "10.0.0.4"), true, "web")
	step(meshService("web.b", "shop", nil, "10.0.0.5"), true, "web")
	step(meshService("web.a", "shop", func(s *registry.Service) { s.External = true }, "10.0.0.4"), true, "web")
	step(meshService("db.b", "shop", nil), true, "db")
	step(meshService("web.b", "shop", nil), false, "web")
	step(meshService("web.a", "shop", nil), false)
}

// Of two services that come to have one name in one step, and change it in the next, in whatever order that is looked at, the right
// one stands there.
func TestOffersRenamed(t *testing.T) {
	t.Parallel()
	for range 20 { // the order is that of a map
		a, b := meshService("web.old.example", "shop", nil, "10.0.0.1"), meshService("web.new.example", "shop", nil, "10.0.0.2")
		f, _ := offered(ExportOptions{Owner: "shop"}, nil, a)
		f.take(Services{}.With(b.Service.Key, b.Service), Endpoints{}.With(b.Service.Key, b.Endpoints))
		if want := []string{"web 10.0.0.2:8080 of web.new.example"}; !slices.Equal(f.shown(), want) {
			t.Fatalf("got %q, want %q", f.shown(), want)
		}
	}
}

// Entries of different services never have one ID, and no label, locality or network that a workload says of itself makes one
// that Consul refuses, or that programs which obey tags take for an order.
func TestEntriesOfStrangers(t *testing.T) {
	t.Parallel()
	stranger := meshService("db.example", "shop", nil, "east-db1.example.com", "10.0.0.1")
	long := strings.Repeat("<", 1000)
	stranger.Endpoints.Items[1].Labels = map[string]string{"app": long, "version": "1 2", long: "x", "traefik.http.routers.x.rule": "Host(`bank.example`)"}
	stranger.Endpoints.Items[1].Locality, stranger.Endpoints.Items[1].Network = registry.Locality{Region: long}, long
	f, _ := offered(ExportOptions{Owner: "shop"}, nil, stranger, meshService("db-east.example", "shop", nil, "db1.example.com"))
	ids := map[string]string{}
	for name, entries := range f.wanted {
		for id, e := range entries {
			if ids[id] != "" {
				t.Errorf("%s is an entry of %s and of %s", id, ids[id], name)
			}
			ids[id] = name
			if len(e.tags) > 0 || e.meta[keyLocality]+e.meta[keyNetwork] != "" {
				t.Errorf("%s has the tags %q and the metadata %q", id, e.tags, e.meta)
			}
		}
	}
	if len(ids) != 3 {
		t.Errorf("entries are %v", ids)
	}
}

// What another mesh reads of an entry is what the endpoint was, and this one reads nothing of it.
func TestEntryComesBack(t *testing.T) {
	t.Parallel()
	in := meshService("web.example", "shop", func(s *registry.Service) {
		s.Ports = append(s.Ports, registry.Port{Number: 9090, Name: "grpc-admin", Protocol: registry.GRPC})
	})
	in.Endpoints.Items = []registry.Endpoint{
		{Address: "10.0.0.1", Labels: map[string]string{"app.kubernetes.io/name": "web", "version": "1", "team": "x"}, Weight: 7, Locality: registry.Locality{Region: "eu", Zone: "z"}, Network: "n1", ServiceAccount: "web", TLSMode: "istio", Workload: "web-1"},
		{Address: "10.0.0.2", Ports: map[string]uint32{"http": 81}, Health: registry.Unhealthy},
		{Address: "10.0.0.2", Ports: map[string]uint32{"http": 81}, Health: registry.Draining}, // the same place
	}
	f, _ := offered(ExportOptions{Owner: "shop", Tags: []string{"mesh"}, Labels: []string{"app.kubernetes.io/name", "version"}}, nil, in)
	var entries []*api.ServiceEntry
	for _, id := range slices.Sorted(maps.Keys(f.wanted["web"])) {
		e := f.wanted["web"][id]
		s, c := e.service(), e.check("ashore-shop")
		if back := entryIn(&s, &c); !back.equal(e) {
			t.Errorf("it is not what was written: %+v, %+v", back, e)
		}
		if back := entryIn(&s, nil); back.equal(e) {
			t.Errorf("without a check it is what was written: %+v", back)
		}
		entries = append(entries, &api.ServiceEntry{Node: &api.Node{Node: "ashore-shop", Address: nodeAddress, Datacenter: "dc1"}, Service: &s, Checks: api.HealthChecks{&c}})
	}
	o := Options{Exported: []string{"shop"}}.withDefaults()
	got := convert(&o, place{}, "web", entries)
	if len(got.problems) > 0 || len(got.instances) != 2 {
		t.Fatalf("got %+v", got)
	}
	ports := []registry.Port{{Number: 9090, Name: "grpc-admin", Protocol: registry.GRPC}, {Number: 80, Name: "http", Protocol: registry.HTTP}}
	sorted := slices.SortedFunc(slices.Values(got.instances[0].Service.Ports), func(a, b registry.Port) int { return strings.Compare(a.Name, b.Name) })
	for i := range sorted {
		sorted[i].TargetPort = 0
	}
	if diff := cmp.Diff(ports, sorted); diff != "" {
		t.Errorf("ports: %s", diff)
	}
	type seen struct {
		Address  string
		HTTP     uint32
		Labels   map[string]string
		Weight   uint32
		Locality registry.Locality
		Network  string
		Health   registry.Health
		Account  string
	}
	var list []seen
	for _, ep := range got.instances[0].Endpoints.Items {
		p := ports[1]
		for _, q := range got.instances[0].Service.Ports {
			if q.Name == p.Name {
				p = q
			}
		}
		list = append(list, seen{ep.Address, ep.Port(p), ep.Labels, ep.Weight, ep.Locality, ep.Network, ep.Health, ep.ServiceAccount})
	}
	want := []seen{
		{"10.0.0.1", 8080, map[string]string{"app.kubernetes.io/name": "web", "version": "1", "mesh": "true"}, 7, registry.Locality{Region: "eu", Zone: "z"}, "n1", registry.Healthy, ""},
		{"10.0.0.2", 81, map[string]string{"mesh": "true"}, 1, registry.Locality{Region: "dc1"}, "", registry.Unhealthy, ""},
	}
	if diff := cmp.Diff(want, list); diff != "" {
		t.Errorf("endpoints: %s", diff)
	}
	own := Options{Export: ExportOptions{Owner: "shop"}}.withDefaults()
	if got := convert(&own, place{}, "web", entries); len(got.instances) != 0 || len(got.problems) != 0 {
		t.Errorf("its own come back: %+v", got)
	}
}
