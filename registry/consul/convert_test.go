package consul

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/consul/api"

	"github.com/ashore-mesh/ashore/registry"
)

// convert converts an answer about a service.
func convert(o *Options, at place, name string, entries []*api.ServiceEntry) converted {
	return (&converter{o: o, at: at, name: name}).convert(entries)
}

// entry returns an instance on a node of its own, changed by edit.
func entry(id string, edit ...func(*api.ServiceEntry)) *api.ServiceEntry {
	e := &api.ServiceEntry{
		Node:    &api.Node{Node: "node-" + id, Address: "10.0.0.1", Datacenter: "dc1"},
		Service: &api.AgentService{ID: id, Service: "web", Address: "10.1.0.1", Port: 8080, CreateIndex: 10},
	}
	for _, f := range edit {
		f(e)
	}
	return e
}

func meta(pairs ...string) func(*api.ServiceEntry) {
	return func(e *api.ServiceEntry) {
		if e.Service.Meta == nil {
			e.Service.Meta = map[string]string{}
		}
		for i := 0; i < len(pairs); i += 2 {
			e.Service.Meta[pairs[i]] = pairs[i+1]
		}
	}
}

func at(address string, port int) func(*api.ServiceEntry) {
	return func(e *api.ServiceEntry) { e.Service.Address, e.Service.Port = address, port }
}

func created(index uint64) func(*api.ServiceEntry) {
	return func(e *api.ServiceEntry) { e.Service.CreateIndex = index }
}

func checks(states ...string) func(*api.ServiceEntry) {
	return func(e *api.ServiceEntry) {
		for i, s := range states {
			id, status, two := strings.Cut(s, "=")
			if !two {
				id, status = string(rune('a'+i)), s
			}
			e.Checks = append(e.Checks, &api.HealthCheck{CheckID: id, Status: status})
		}
	}
}

func tags(list ...string) func(*api.ServiceEntry) {
	return func(e *api.ServiceEntry) { e.Service.Tags = list }
}

func read(edit ...func(*Options)) *Options {
	o := Options{}
	for _, f := range edit {
		f(&o)
	}
	o = o.withDefaults()
	return &o
}

// only returns the service under its first host.
func only(t *testing.T, c converted) registry.Instances {
	t.Helper()
	if len(c.instances) == 0 {
		t.Fatalf("no service; problems %v", c.problems)
	}
	return c.instances[0]
}

func texts(c converted) []string {
	var out []string
	for _, p := range c.problems {
		out = append(out, p.String())
	}
	return out
}

// An instance becomes an endpoint with its address, health, weight, labels, locality and identity.
func TestConvertEndpoint(t *testing.T) {
	t.Parallel()
	plain := registry.Endpoint{
		Address: "10.1.0.1", Locality: registry.Locality{Region: "dc1"}, Weight: 1, Namespace: "default", Workload: "a",
	}
	with := func(f func(*registry.Endpoint)) registry.Endpoint { e := plain; f(&e); return e }
	tests := map[string]struct {
		options *Options
		entry   *api.ServiceEntry
		want    registry.Endpoint
		problem string
	}{
		"the minimum": {read(), entry("a"), plain, ""},
		"its node's address": {
			read(), entry("a", at("", 80)), with(func(e *registry.Endpoint) { e.Address = "10.0.0.1" }), "",
		},
		"IPv6": {
			read(), entry("a", at("2001:DB8::1",
				80)), with(func(e *registry.Endpoint) { e.Address = "2001:db8::1" }), "",
		},
		"a name": {
			read(), entry("a", at("Web.Example.com.",
				80)), with(func(e *registry.Endpoint) { e.Address = "web.example.com" }),
			"",
		},
		"passing": {read(), entry("a", checks("passing", "passing")), plain, ""},
		"one critical of several": {
			read(), entry("a", checks("passing", "critical")),
			with(func(e *registry.Endpoint) { e.Health = registry.Unhealthy }), "",
		},
		"warning is served": {read(), entry("a", checks("warning", "passing")), plain, ""},
		"warning is dropped": {
			read(func(o *Options) { o.Warning = "drop" }), entry("a", checks("warning")),
			with(func(e *registry.Endpoint) { e.Health = registry.Unhealthy }), "",
		},
		"maintenance of the service": {
			read(), entry("a", checks("_service_maintenance:a=critical")),
			with(func(e *registry.Endpoint) { e.Health = registry.Draining }), "",
		},
		"maintenance of the node": {
			read(), entry("a", checks("_node_maintenance=critical", "x=critical")),
			with(func(e *registry.Endpoint) { e.Health = registry.Draining }), "",
		},
		"weights": {
			read(), entry("a", func(e *api.ServiceEntry) {
				e.Service.Weights = api.AgentWeights{Passing: 7,
					Warning: 2}
			}),
			with(func(e *registry.Endpoint) { e.Weight = 7 }), "",
		},
		"a weight of zero": {
			read(),
			entry("a", checks("warning"),
				func(e *api.ServiceEntry) { e.Service.Weights = api.AgentWeights{Passing: 7} }),
			with(func(e *registry.Endpoint) { e.Health = registry.Unhealthy }), "",
		},
		"labels": {read(), entry("a", tags("v1", "team=a", "stage|test", "=x", "", "version=tag"), meta("version", "1.2", "ashore-network", "n1")), with(func(e *registry.Endpoint) {
			e.Network, e.Labels = "n1", map[string]string{"v1": "true", "team": "a", "stage": "test", "version": "1.2"}
		}), ""},
		"network of the settings": {
			read(func(o *Options) { o.Network = "n3" }), entry("a"), with(func(e *registry.Endpoint) { e.Network = "n3" }), "",
		},
		"locality of Consul": {
			read(), entry("a", func(e *api.ServiceEntry) {
				e.Node.Locality = &api.Locality{Region: "eu",
					Zone: "eu-1"}
			}),
			with(func(e *registry.Endpoint) { e.Locality = registry.Locality{Region: "eu", Zone: "eu-1"} }), "",
		},
		"locality in metadata": {
			read(),
			entry("a", meta("ashore-locality", "eu/eu-2/r1"),
				func(e *api.ServiceEntry) { e.Node.Locality = &api.Locality{Region: "us"} }),
			with(func(e *registry.Endpoint) {
				e.Locality = registry.Locality{Region: "eu", Zone: "eu-2",
					SubZone: "r1"}
			}), "",
		},
		"identity": {
			read(), entry("a", meta("ashore-service-account", "web")),
			with(func(e *registry.Endpoint) { e.ServiceAccount, e.TLSMode = "web", "istio" }), "",
		},
		"mutual TLS by a tag": {read(), entry("a", tags("security.istio.io/tlsMode=istio")), with(func(e *registry.Endpoint) {
			e.TLSMode, e.Labels = "istio", map[string]string{"security.istio.io/tlsMode": "istio"}
		}), ""},
		"an account of the settings": {
			read(func(o *Options) { o.ServiceAccount = "consul-${service}" }), entry("a"),
			with(func(e *registry.Endpoint) { e.ServiceAccount, e.TLSMode = "consul-web", "istio" }), "",
		},
		"metadata is ignored": {
			read(func(o *Options) { o.Identity = "settings" }),
			entry("a", meta("ashore-service-account", "root", "ashore-tls-mode", "istio")), plain, "",
		},
		"an invalid account": {
			read(), entry("a", meta("ashore-service-account", "../root")),
			with(func(e *registry.Endpoint) { e.ServiceAccount, e.TLSMode = "default", "istio" }),
			"is not the name of a service account",
		},
		"an account that is too long": {
			read(func(o *Options) { o.ServiceAccount = "${service}-" + strings.Repeat("a", 60) }), entry("a"),
			with(func(e *registry.Endpoint) { e.ServiceAccount, e.TLSMode = "default", "istio" }),
			`is not the name of a service account, so clients expect the account default`,
		},
		"a tagged address": {read(func(o *Options) { o.AddressTags = []string{"lan_ipv6", "x"} }), entry("a", func(e *api.ServiceEntry) {
			e.Service.TaggedAddresses = map[string]api.ServiceAddress{"x": {Address: "10.7.7.7", Port: 99}}
		}), with(func(e *registry.Endpoint) { e.Address = "10.7.7.7" }), ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := convert(tc.options, place{}, "web", []*api.ServiceEntry{tc.entry})
			list := only(t, got).Endpoints.All()
			if len(list) != 1 {
				t.Fatalf("%d endpoints", len(list))
			}
			if d := cmp.Diff(tc.want, list[0]); d != "" {
				t.Errorf("endpoint (-want +got):\n%s", d)
			}
			all := strings.Join(texts(got), "\n")
			if tc.problem == "" && all != "" || !strings.Contains(all, tc.problem) {
				t.Errorf("problems %q, want %q", all, tc.problem)
			}
		})
	}
}

// An instance that cannot be an endpoint is left out with a problem. The others stay.
func TestConvertLeftOut(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		entry   *api.ServiceEntry
		problem string
	}{
		"no port": {entry("b", at("10.1.0.2", 0)), "Consul service web instance b: has no port"},
		"a unix socket": {
			entry("b", func(e *api.ServiceEntry) { e.Service.SocketPath = "/run/web" }), "listens on the unix socket /run/web",
		},
		"an invalid address": {entry("b", at("not an address", 80)), `its address "not an address" is neither`},
		"an unhealthy duplicate": {
			entry("b", at("10.1.0.1", 8080), created(11), checks("critical")),
			"instance b: has the address and ports of instance a",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := convert(read(), place{}, "web", []*api.ServiceEntry{tc.entry, entry("a")})
			if list := only(t, got).Endpoints.All(); len(list) != 1 || list[0].Workload != "a" {
				t.Errorf("endpoints %+v", list)
			}
			if all := texts(got); len(all) != 1 || !strings.Contains(all[0], tc.problem) {
				t.Errorf("problems %q, want %q", all, tc.problem)
			}
		})
	}
}

// A service whose instances are all left out is not part of the mesh, with a problem.
func TestConvertAllLeftOut(t *testing.T) {
	t.Parallel()
	got := convert(read(), place{}, "web", []*api.ServiceEntry{entry("a", at("10.1.0.1", 0))})
	if all := texts(got); len(got.instances) != 0 || len(all) != 2 || !strings.Contains(all[1], "is not part of the mesh") {
		t.Errorf("got %+v", got)
	}
}

// The ports of a service are those of its instances.
func TestConvertPorts(t *testing.T) {
	t.Parallel()
	port := func(number uint32, name string, p registry.Protocol, target uint32) registry.Port {
		return registry.Port{Number: number, Name: name, Protocol: p, TargetPort: target}
	}
	tests := map[string]struct {
		options *Options
		entries []*api.ServiceEntry
		ports   []registry.Port
		targets [][]uint32 // of each endpoint, by port
		problem string
	}{
		"as registered": {
			read(), []*api.ServiceEntry{entry("a")}, []registry.Port{port(8080, "main", registry.Unknown, 0)},
			[][]uint32{{8080}}, "",
		},
		"by the protocol of metadata": {
			read(), []*api.ServiceEntry{entry("a", meta("protocol", "HTTP"))},
			[]registry.Port{port(8080, "http", registry.HTTP, 0)}, [][]uint32{{8080}}, "",
		},
		"an unknown protocol": {
			read(), []*api.ServiceEntry{entry("a", meta("protocol", "gopher"))},
			[]registry.Port{port(8080, "main", registry.Unknown,
				0)}, [][]uint32{{8080}}, `protocol "gopher" is unknown`,
		},
		"a port of the service": {
			read(), []*api.ServiceEntry{entry("a", meta("ashore-port", "80"))},
			[]registry.Port{port(80, "main", registry.Unknown, 8080)}, [][]uint32{{8080}}, "",
		},
		"several in metadata": {
			read(),
			[]*api.ServiceEntry{
				entry("a", meta("ashore-port-http", "80:8080", "ashore-port-grpc-api", "9090", "ashore-port-x", "99x")),
			},
			[]registry.Port{port(9090, "grpc-api", registry.GRPC, 0), port(80, "http", registry.HTTP, 8080)},
			[][]uint32{{9090, 8080}}, `ashore-port-x "99x" is not a port`,
		},
		"several ports in Consul": {read(), []*api.ServiceEntry{entry("a", func(e *api.ServiceEntry) {
			e.Service.Ports = api.ServicePorts{{Name: "http", Port: 80, Default: true}, {Name: "admin", Port: 81},
				{Name: "bad", Port: 0}}
		})}, []registry.Port{port(81, "admin", registry.Unknown, 0), port(80, "http", registry.HTTP, 0)}, [][]uint32{{81, 80}}, `its port "bad" (0) is left out`},
		"one declares the port": {
			read(),
			[]*api.ServiceEntry{
				entry("a", at("10.1.0.1", 20001), created(1)), entry("b", at("10.1.0.2", 20002),
					meta("ashore-port", "80")),
			},
			[]registry.Port{port(80, "main", registry.Unknown, 20001)}, [][]uint32{{20001}, {20002}}, "",
		},
		"protocols that differ": {
			read(),
			[]*api.ServiceEntry{
				entry("a", meta("protocol", "tcp"), created(2)),
				entry("b", at("10.1.0.2", 8080), meta("protocol", "http"), created(1)),
			},
			[]registry.Port{port(8080, "http", registry.HTTP, 0)}, [][]uint32{{8080}, {8080}},
			"instance a: declares port 8080 (http, protocol tcp), and the service has port 8080 (http, protocol http)",
		},
		"each lacks one": {
			read(),
			[]*api.ServiceEntry{entry("a", created(1)), entry("b", at("10.1.0.2", 7071),
				meta("ashore-port-http", "80:7071"))},
			[]registry.Port{port(8080, "main", registry.Unknown, 0), port(80, "http", registry.HTTP, 7071)},
			[][]uint32{{8080, 0}, {0, 7071}}, "instance b: lacks port 8080 (main)",
		},
		"one has another port": {
			read(),
			[]*api.ServiceEntry{
				entry("a", meta("ashore-port-http", "80:8080"), created(1)),
				entry("b", at("10.1.0.2", 8081), meta("ashore-port-http", "80:8081", "ashore-port-adm", "9000:9")),
			},
			[]registry.Port{port(80, "http", registry.HTTP, 8080), port(9000, "adm", registry.Unknown, 9)},
			[][]uint32{{8080, 0}, {8081, 9}}, "instance a: lacks port 9000 (adm)",
		},
		"one gives it another name": {
			read(),
			[]*api.ServiceEntry{
				entry("a", meta("ashore-port-http", "80"), created(1)),
				entry("b", at("10.1.0.2", 1), meta("ashore-port-web", "80:81")),
			},
			[]registry.Port{port(80, "http", registry.HTTP, 0)}, [][]uint32{{80}, {81}},
			"instance b: declares port 80 (web, protocol unknown), and the service has port 80 (http, protocol http)",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := convert(tc.options, place{}, "web", tc.entries)
			in := only(t, got)
			if d := cmp.Diff(tc.ports, in.Service.Ports); d != "" {
				t.Errorf("ports (-want +got):\n%s", d)
			}
			var targets [][]uint32
			for _, ep := range in.Endpoints.All() {
				var of []uint32
				for _, p := range in.Service.Ports {
					of = append(of, ep.Port(p))
				}
				targets = append(targets, of)
			}
			if d := cmp.Diff(tc.targets, targets); d != "" {
				t.Errorf("targets (-want +got):\n%s", d)
			}
			if all := strings.Join(texts(got), "\n"); tc.problem == "" && all != "" ||
				!strings.Contains(all, tc.problem) {
				t.Errorf("problems %q, want %q", all, tc.problem)
			}
		})
	}
}

// The hosts are the names of Consul's DNS.
func TestConvertHosts(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		options *Options
		at      place
		name    string
		want    []string
	}{
		"own":        {read(), place{}, "web", []string{"web.service.consul", "web.service.dc1.consul"}},
		"short":      {read(func(o *Options) { o.Hosts = "short" }), place{}, "web", []string{"web.service.consul"}},
		"datacenter": {read(func(o *Options) { o.Hosts = "datacenter" }), place{}, "web", []string{"web.service.dc1.consul"}},
		"other": {
			read(func(o *Options) { o.Hosts = "short" }), place{Datacenter: "dc2"}, "web", []string{"web.service.dc2.consul"},
		},
		"capital letters": {read(), place{}, "Web", []string{"web.service.consul", "web.service.dc1.consul"}},
		"another domain": {
			read(func(o *Options) { o.Domain = "corp.example" }), place{}, "web",
			[]string{"web.service.corp.example", "web.service.dc1.corp.example"},
		},
		"a namespace": {
			read(), place{Namespace: "shop"}, "web", []string{"web.service.shop.ns.consul",
				"web.service.shop.ns.dc1.dc.consul"},
		},
		"both": {
			read(), place{Datacenter: "dc2", Namespace: "shop", Partition: "eu"}, "web",
			[]string{"web.service.shop.ns.eu.ap.dc2.dc.consul"},
		},
		"the default ones": {read(), place{Namespace: "default", Partition: "default"}, "web",
			[]string{"web.service.consul", "web.service.dc1.consul"}},
		"not a DNS name": {read(), place{}, "my_web", nil},
		"with a dot":     {read(), place{}, "a.b", nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := convert(tc.options, tc.at, tc.name, []*api.ServiceEntry{entry("a")})
			var hosts []string
			for _, in := range got.instances {
				hosts = append(hosts, in.Service.Host)
			}
			if !slices.Equal(hosts, tc.want) {
				t.Errorf("got %q, want %q", hosts, tc.want)
			}
			if tc.want == nil && (len(got.problems) != 1 || !strings.Contains(got.problems[0].Text,
				"is not a DNS label")) {
				t.Errorf("problems %v", got.problems)
			}
		})
	}
}

// Sidecars and gateways of Consul's own mesh are not services.
func TestConvertConnect(t *testing.T) {
	t.Parallel()
	sidecar := entry("a", func(e *api.ServiceEntry) { e.Service.Kind = api.ServiceKindConnectProxy })
	got := convert(read(), place{}, "web-sidecar-proxy", []*api.ServiceEntry{sidecar})
	if len(got.instances) != 0 || len(got.problems) != 0 {
		t.Errorf("got %+v", got)
	}
}

// A service with a name among its addresses has the resolution DNS. An instance may declare it
// external.
func TestConvertService(t *testing.T) {
	t.Parallel()
	got := only(t, convert(read(), place{}, "web", []*api.ServiceEntry{entry("a", at("web.example.com", 443)),
		entry("b", meta("external", "true"))}))
	if got.Service.Resolution != registry.DNS || !got.Service.External || got.Service.Object != "Consul service web" {
		t.Errorf("got %+v", got.Service)
	}
	got = only(t, convert(read(func(o *Options) { o.Namespaces = []string{"shop"} }),
		place{Namespace: "shop", Datacenter: "dc2"}, "web",
		[]*api.ServiceEntry{entry("a",
			func(e *api.ServiceEntry) { e.Node.TaggedAddresses = map[string]string{"wan": "192.0.2.1"} }, at("", 80))}))
	if ep := got.Endpoints.All()[0]; got.Service.Namespace != "shop" || ep.Namespace != "shop" ||
		ep.Address != "192.0.2.1" {
		t.Errorf("got %+v %+v", got.Service, ep)
	}
}

// The result does not depend on the order of instances in the answer.
func TestConvertOrder(t *testing.T) {
	t.Parallel()
	list := []*api.ServiceEntry{
		entry("a"), entry("b", at("10.1.0.2", 80)), entry("c", at("10.1.0.1", 8080), created(20)),
		entry("d", at("10.1.0.4", 81), meta("protocol", "http")),
	}
	want := convert(read(), place{}, "web", slices.Clone(list))
	slices.Reverse(list)
	if d := cmp.Diff(want.instances, convert(read(), place{}, "web", list).instances); d != "" {
		t.Errorf("(-forwards +backwards):\n%s", d)
	}
}

// FuzzConvert converts arbitrary answers. The result is valid, and the same each time.
func FuzzConvert(f *testing.F) {
	for _, seed := range []string{
		`[{"Node":{"Node":"n","Address":"10.0.0.1","Datacenter":"dc1"},"Service":{"ID":"a","Service":"web","Port":80,"Tags":["v=1"],"Meta":{"ashore-port-http":"80:8080"}},"Checks":[{"CheckID":"c","Status":"passing"}]}]`,
		`[null,{},{"Node":{},"Service":{}},{"Node":{},"Service":{"Port":1},"Checks":[null]}]`,
		`[{"Node":{"Node":"n"},"Service":{"Kind":"connect-proxy","Proxy":null}}]`,
		`[{"Node":{"Address":"::1"},"Service":{"Port":-5,"Weights":{"Passing":-1},"Ports":[{"Name":"A","Port":99999}]}}]`,
	} {
		f.Add([]byte(seed), "web", uint16(0))
	}
	f.Fuzz(func(t *testing.T, raw []byte, name string, port uint16) {
		var entries []*api.ServiceEntry
		if json.Unmarshal(raw, &entries) != nil || !complete(entries) {
			return
		}
		o := read(func(o *Options) { o.ServicePort = uint32(port) })
		got := convert(o, place{}, name, slices.Clone(entries))
		for _, in := range got.instances {
			checkInvariants(t, in)
		}
		if d := cmp.Diff(got.instances, convert(o, place{}, name, slices.Clone(entries)).instances); d != "" {
			t.Errorf("the second conversion differs:\n%s", d)
		}
	})
}

// checkInvariants checks that a service and its endpoints are valid.
func checkInvariants(t *testing.T, in registry.Instances) {
	t.Helper()
	names, numbers := map[string]bool{}, map[uint32]bool{}
	for _, p := range in.Service.Ports {
		if p.Number == 0 || p.Number > 65535 || p.TargetPort > 65535 || names[p.Name] || numbers[p.Number] {
			t.Errorf("port %+v of %+v", p, in.Service.Ports)
		}
		names[p.Name], numbers[p.Number] = true, true
	}
	if len(in.Service.Ports) == 0 {
		t.Error("a service without ports")
	}
	for _, ep := range in.Endpoints.All() {
		_, err := netip.ParseAddr(ep.Address)
		if !validAddress(ep.Address) || err != nil && in.Service.Resolution != registry.DNS {
			t.Errorf("address %q of a service with resolution %v", ep.Address, in.Service.Resolution)
		}
		any := false
		for _, p := range in.Service.Ports {
			n := ep.Port(p)
			if any = any || n != 0; n > 65535 {
				t.Errorf("port %d", n)
			}
		}
		if !any {
			t.Errorf("an endpoint without a port: %+v", ep)
		}
	}
}

// In a rolling change of the port, clients reach a service at the port that most instances have. On
// a tie the oldest instance decides. With many different ports it is 80.
func TestRollingPortChange(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		ports   []int // oldest first
		want    uint32
		problem bool
	}{
		{[]int{8080, 8080, 8080, 8080}, 8080, false},
		{[]int{8080, 8080, 8080, 9090}, 8080, false},
		{[]int{8080, 8080, 9090, 9090}, 8080, true},
		{[]int{8080, 9090, 9090, 9090}, 9090, false},
		{[]int{9090, 8080}, 9090, true},
		{[]int{1, 2, 3}, anyPort, true},
	} {
		var list []*api.ServiceEntry
		for i, p := range tc.ports {
			id := string(rune('z' - i)) // the order of IDs is another one
			list = append(list, entry(id, at(fmt.Sprint("10.1.0.", i), p), created(uint64(i))))
		}
		got := convert(read(), place{}, "web", list)
		if port := only(t, got).Service.Ports[0].Number; port != tc.want || len(got.problems) > 0 != tc.problem {
			t.Errorf("%v: clients reach it at %d, want %d; problems %q", tc.ports, port, tc.want, texts(got))
		}
	}
}
