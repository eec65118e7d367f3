package registry

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

// declaration is a part of a ServiceEntry.
func declaration(namespace string, ports, endpoints string, options ...func(*Service)) Part {
	p := newPart("entries", "ServiceEntry "+namespace+"/web", namespace, ports, endpoints, options...)
	p.Service.Declared = true
	return p
}

// known is a part of a registry, whose services are in the namespace consul.
func known(source, ports, endpoints string, options ...func(*Service)) Part {
	return newPart(source, "service web", "consul", ports, endpoints, options...)
}

func relayed(ports, endpoints string) Part {
	isRelayed := func(s *Service) { s.Relayed = true }
	return newPart("entries", "ServiceEntry mesh/registry-web", "mesh", ports, endpoints, isRelayed)
}

// newPart makes a part with ports like "http:80 admin:81>8081" and endpoints like "10.0.0.1
// 10.0.0.2,http:8080".
func newPart(source, object, namespace, ports, endpoints string, options ...func(*Service)) Part {
	s := &Service{Key: Key{"web", namespace}, Object: object, Source: source}
	for text := range strings.FieldsSeq(ports) {
		var p Port
		name, numbers, _ := strings.Cut(text, ":")
		fmt.Sscanf(numbers, "%d>%d", &p.Number, &p.TargetPort)
		p.Name = name
		s.Ports = append(s.Ports, p)
	}
	for _, o := range options {
		o(s)
	}
	l := &EndpointList{}
	for text := range strings.FieldsSeq(endpoints) {
		fields := strings.Split(text, ",")
		e := Endpoint{Address: fields[0], Workload: source}
		for _, f := range fields[1:] {
			name, number, _ := strings.Cut(f, ":")
			if e.Ports == nil {
				e.Ports = map[string]uint32{}
			}
			var n uint32
			fmt.Sscan(number, &n)
			e.Ports[name] = n
		}
		l.Items = append(l.Items, e)
	}
	return Part{Instances: Instances{Service: s, Endpoints: l}, Source: source}
}

func exportTo(to ...string) func(*Service) { return func(s *Service) { s.ExportTo = to } }

func created(day int) func(*Service) {
	return func(s *Service) { s.Created = time.Date(2026, 1, day, 0, 0, 0, 0, time.UTC) }
}

func resolution(r Resolution) func(*Service) { return func(s *Service) { s.Resolution = r } }

// served describes services by namespace, and for each port where it is served: "shop:
// 80=10.0.0.1:8080".
func served(all []Joined) string {
	var out []string
	for _, j := range all {
		text := j.Service.Namespace + ":"
		for _, p := range j.Service.Ports {
			text += fmt.Sprintf(" %s/%d=", p.Name, p.Number)
			var at []string
			for _, e := range j.Endpoints.All() {
				if n := e.Port(p); n != 0 {
					at = append(at, fmt.Sprintf("%s:%d(%s)", e.Address, n, e.Workload))
				}
			}
			text += strings.Join(at, ",")
		}
		out = append(out, text)
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

func TestJoin(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		cfg   JoinConfig
		parts []Part
		want  []string
	}{
		{"nothing", JoinConfig{}, nil, nil},
		{"one source", JoinConfig{}, []Part{known("c", "http:80", "10.0.0.1")}, []string{"consul: http/80=10.0.0.1:80(c)"}},
		{"the service is in the namespace of its declaration", JoinConfig{},
			[]Part{known("c", "http:80>8080", "10.0.0.1"), declaration("shop", "http:80", "")},
			[]string{"shop: http/80=10.0.0.1:8080(c)"}},
		{"endpoints are united, the declared first", JoinConfig{},
			[]Part{
				declaration("shop", "http:80", "10.0.0.9"), known("c", "http:80", "10.0.0.1"), known("d", "http:80",
					"10.0.0.2"),
			},
			[]string{"shop: http/80=10.0.0.9:80(entries),10.0.0.1:80(c),10.0.0.2:80(d)"}},
		{"one endpoint of two sources is that of the first", JoinConfig{},
			[]Part{known("c", "http:80", "10.0.0.1,http:8080"),
				known("d", "http:80", "10.0.0.1,http:8080 10.0.0.1,http:9090")},
			[]string{"consul: http/80=10.0.0.1:8080(c),10.0.0.1:9090(d)"}},
		{"ports are united, and each endpoint serves its own", JoinConfig{},
			[]Part{
				declaration("shop", "http:80 metrics:9090", "10.0.0.9"),
				known("c", "web:80>8080 admin:81", "10.0.0.1 10.0.0.2,web:8082,admin:0"),
			},
			[]string{"shop: http/80=10.0.0.9:80(entries),10.0.0.1:8080(c),10.0.0.2:8082(c) " +
				"metrics/9090=10.0.0.9:9090(entries) admin/81=10.0.0.1:81(c)"}},
		{"an endpoint serves what an earlier part does not serve there", JoinConfig{},
			[]Part{declaration("shop", "http:80", "10.0.0.1"), known("c", "http:80 admin:81", "10.0.0.1")},
			[]string{"shop: http/80=10.0.0.1:80(entries) admin/81=10.0.0.1:81(c)"}},
		{"two ports of one name", JoinConfig{},
			[]Part{declaration("shop", "http:80", "10.0.0.9"), known("c", "http:8080", "10.0.0.1")},
			[]string{"shop: http/80=10.0.0.9:80(entries) http-8080/8080=10.0.0.1:8080(c)"}},
		{"addresses join names", JoinConfig{},
			[]Part{declaration("shop", "http:80", "example.com", resolution(DNS)), known("c", "http:80", "10.0.0.1")},
			[]string{"shop: http/80=example.com:80(entries),10.0.0.1:80(c)"}},
		{"names do not join addresses", JoinConfig{},
			[]Part{declaration("shop", "http:80", "10.0.0.9"),
				known("c", "http:80", "10.0.0.1 a.example ::1 unix:///a", resolution(DNS))},
			[]string{"shop: http/80=10.0.0.9:80(entries),10.0.0.1:80(c),::1:80(c),unix:///a:80(c)"}},
		{"or those of the first that has any", JoinConfig{Shadow: true},
			[]Part{declaration("shop", "http:80", ""), known("c", "http:80", "10.0.0.1"),
				known("d", "http:80", "10.0.0.2")},
			[]string{"shop: http/80=10.0.0.1:80(c)"}},
		{"a part of names alone has no endpoints", JoinConfig{Shadow: true},
			[]Part{declaration("shop", "http:80", ""), known("c", "http:80", "a.example", resolution(DNS)),
				known("d", "http:80", "10.0.0.2")},
			[]string{"shop: http/80=10.0.0.2:80(d)"}},
		{"nothing joins NONE", JoinConfig{},
			[]Part{declaration("shop", "http:80", "10.0.0.9", resolution(Passthrough)), known("c", "http:80", "10.0.0.1")},
			[]string{"shop: http/80=10.0.0.9:80(entries)"}},
		{"NONE joins nothing", JoinConfig{},
			[]Part{declaration("shop", "http:80", "10.0.0.9", resolution(DNS)),
				known("c", "http:80", "10.0.0.1", resolution(Passthrough))},
			[]string{"shop: http/80=10.0.0.9:80(entries)"}},
		{"round robin has one name", JoinConfig{},
			[]Part{declaration("shop", "http:80", "a.example", resolution(DNSRoundRobin)), known("c", "http:80", "10.0.0.1")},
			[]string{"shop: http/80=a.example:80(entries)"}},
		{"a relayed service counts last", JoinConfig{},
			[]Part{relayed("http:80", "10.0.0.1,http:1 10.0.0.3"), known("c", "http:80", "10.0.0.1 10.0.0.2")},
			[]string{"consul: http/80=10.0.0.1:80(c),10.0.0.2:80(c),10.0.0.1:1(entries),10.0.0.3:80(entries)"}},
		{"a relayed service alone", JoinConfig{},
			[]Part{relayed("http:80", "10.0.0.1")}, []string{"mesh: http/80=10.0.0.1:80(entries)"}},
		{"declarations in two namespaces are two services, registries join the older", JoinConfig{},
			[]Part{
				declaration("a", "http:80", "10.0.0.8", created(2)), declaration("b", "http:80", "10.0.0.9",
					created(1)),
				known("c", "http:80", "10.0.0.1"),
			},
			[]string{"a: http/80=10.0.0.8:80(entries)", "b: http/80=10.0.0.9:80(entries),10.0.0.1:80(c)"}},
		{"others than those who see the declaration keep the registry's service", JoinConfig{},
			[]Part{declaration("shop", "http:80", "10.0.0.9", exportTo(".")), known("c", "http:80", "10.0.0.1")},
			[]string{"consul: http/80=10.0.0.1:80(c)", "shop: http/80=10.0.0.9:80(entries),10.0.0.1:80(c)"}},
		{"until a declaration is exported to all", JoinConfig{ExportTo: []string{"."}},
			[]Part{
				declaration("a", "http:80", "", created(1)), declaration("b", "http:80", "", created(2), exportTo("*")),
				declaration("z", "http:80", "", created(3)), known("c", "http:80", "10.0.0.1"),
			},
			[]string{"a: http/80=10.0.0.1:80(c)", "b: http/80=10.0.0.1:80(c)", "z: http/80="}},
		{"a declaration in the registry's namespace takes the place of its service", JoinConfig{},
			[]Part{declaration("consul", "http:80", "", exportTo(".")), known("c", "http:80", "10.0.0.1")},
			[]string{"consul: http/80=10.0.0.1:80(c)"}},
		{"and a later one that is exported to all has the registry's endpoints too", JoinConfig{},
			[]Part{declaration("consul", "http:80", "", exportTo(".")), declaration("shop", "http:80", ""),
				known("c", "http:80", "10.0.0.1")},
			[]string{"consul: http/80=10.0.0.1:80(c)", "shop: http/80=10.0.0.1:80(c)"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			before := served(each(c.parts))
			joined := c.cfg.Join(c.parts)
			if got, want := served(joined), strings.Join(c.want, "\n"); got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
			for _, j := range joined {
				used := 0
				for _, p := range j.Parts {
					used += p.Used
				}
				if used != j.Endpoints.Len() {
					t.Errorf("%s: parts have %d endpoints, the service has %d", j.Service.Namespace, used,
						j.Endpoints.Len())
				}
			}
			if after := served(each(c.parts)); after != before {
				t.Errorf("the parts were changed from\n%s\nto\n%s", before, after)
			}
		})
	}
}

// each is every part by itself.
func each(parts []Part) (out []Joined) {
	for _, p := range parts {
		out = append(out, Joined{Instances: p.Instances})
	}
	return out
}

// The first part sets all options, and endpoints that need no change are not copied.
func TestJoinOptions(t *testing.T) {
	t.Parallel()
	address := netip.MustParsePrefix("10.1.0.1/32")
	first := declaration("shop", "http:80", "", func(s *Service) { s.Labels = map[string]string{"a": "b"} })
	other := known("c", "http:80", "10.0.0.1", func(s *Service) {
		s.Addresses, s.External = []netip.Prefix{address}, true
		s.SubjectAltNames, s.Labels = []string{"x"}, map[string]string{"c": "d"}
	})
	got := JoinConfig{}.Join([]Part{other, first})[0]
	if s := got.Service; s != first.Service {
		t.Errorf("the service is %+v, want %+v", s, first.Service)
	}
	if got.Endpoints != other.Endpoints {
		t.Error("the endpoints are another list")
	}
}

// A service of two clusters has the virtual IPs of both, which do not contradict one another.
func TestJoinClusters(t *testing.T) {
	t.Parallel()
	in := func(cluster, address string) func(*Service) {
		return func(s *Service) {
			s.Cluster, s.Addresses = cluster, []netip.Prefix{netip.MustParsePrefix(address)}
		}
	}
	parts := []Part{
		known("east", "http:80", "10.0.0.1", in("east", "10.96.0.1/32")),
		known("west", "http:80", "10.0.0.2", in("west", "10.96.0.2/32")),
		known("west-again", "http:80", "", in("west", "10.96.0.3/32")),
	}
	joined := JoinConfig{}.Join(parts)
	if p := joined[0].Problems(); len(p) > 0 {
		t.Errorf("got problems %v", p)
	}
	for cluster, want := range map[string]string{"east": "10.96.0.1/32", "west": "10.96.0.2/32", "": "10.96.0.1/32"} {
		if got := joined[0].Service.In(cluster).Addresses; len(got) != 1 || got[0].String() != want {
			t.Errorf("in cluster %q the addresses are %v, want %s", cluster, got, want)
		}
	}
	everywhere := JoinConfig{}.Join(append([]Part{known("consul", "http:80", "", in("", "10.9.0.1/32"))}, parts...))
	if got := everywhere[0].Service.In("west").Addresses[0].String(); got != "10.9.0.1/32" {
		t.Errorf("the address that is valid everywhere is not used in a cluster, but %s", got)
	}
}

func TestJoinProblems(t *testing.T) {
	t.Parallel()
	prefix := func(s string) func(*Service) {
		return func(v *Service) { v.Addresses = []netip.Prefix{netip.MustParsePrefix(s)} }
	}
	protocol := func(p Protocol) func(*Service) { return func(s *Service) { s.Ports[0].Protocol = p } }
	external := func(s *Service) { s.External = true }
	for _, c := range []struct {
		name         string
		first, other Part
		want         string
	}{
		{"they agree", declaration("shop", "http:80", ""), known("c", "http:80", "10.0.0.1"), ""},
		{"an open protocol", declaration("shop", "http:80", "", protocol(HTTP)), known("c", "http:80", "10.0.0.1"), ""},
		{"addresses of one alone", declaration("shop", "http:80", ""), known("c", "http:80", "", prefix("10.0.0.0/8")), ""},
		{"a port more", declaration("shop", "http:80 admin:81", "10.0.0.9"), known("c", "http:80", "10.0.0.1"), ""},
		{"resolution", declaration("shop", "http:80", ""), known("c", "http:80", "a.example", resolution(DNS)),
			"service web resolution: is DNS, not STATIC; its endpoints with a name as address are not used"},
		{"resolution of addresses", declaration("shop", "http:80", "", resolution(DNS)), known("c", "http:80", "10.0.0.1"),
			"service web resolution: is STATIC, not DNS; ServiceEntry shop/web of source entries is used"},
		{"resolution NONE", declaration("shop", "http:80", ""), known("c", "http:80", "", resolution(Passthrough)),
			"service web resolution: is NONE, not STATIC; its endpoints are not used"},
		{"the namespace of the registry", declaration("consul", "http:80", "", exportTo(".")),
			known("c", "http:80", "10.0.0.1"), "ServiceEntry consul/web exportTo: service web of source c is in namespace " +
				"consul too, so this hides it from other namespaces: set namespace of the source, or export to *"},
		{"another namespace", declaration("shop", "http:80", "", exportTo(".")), known("c", "http:80", "10.0.0.1"), ""},
		{"the namespace of the registry, exported to all", declaration("consul", "http:80", ""),
			known("c", "http:80", "10.0.0.1"), ""},
		{"location", declaration("shop", "http:80", "", external), known("c", "http:80", ""),
			"service web location: is MESH_INTERNAL, not MESH_EXTERNAL"},
		{"addresses",
			declaration("shop", "http:80", "", prefix("10.0.0.0/8")), known("c", "http:80", "", prefix("10.1.0.0/16")),
			"service web addresses: are [10.1.0.0/16], not [10.0.0.0/8]"},
		{"protocol", declaration("shop", "http:80", "", protocol(HTTP)), known("c", "http:80", "", protocol(TCP)),
			"service web ports: port 80 is TCP, not HTTP"},
		{"another port", declaration("shop", "http:80", ""), known("c", "http:8080", "10.0.0.1"),
			"ServiceEntry shop/web ports: port 80 has no endpoints: this source has none that can be used, and service " +
				"web of source c does not have the port; use one port number in both, or add endpoints here"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, j := range (JoinConfig{}).Join([]Part{c.first, c.other}) {
				for _, p := range j.Problems() {
					got = append(got, p.String())
				}
			}
			if text := strings.Join(got, "\n"); c.want == "" && text != "" || !strings.HasPrefix(text, c.want) ||
				len(got) > 1 {
				t.Errorf("got %q, want %q", text, c.want)
			}
		})
	}
}
