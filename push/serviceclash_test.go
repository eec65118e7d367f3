package push

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/google/go-cmp/cmp"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/registry"
)

// Services that connections to their address do not reach are told of, and no others.
func TestServiceClashes(t *testing.T) {
	t.Parallel()
	type service struct {
		host, addresses, exportTo string
		protocol                  registry.Protocol
		object                    string
		auto                      bool
	}
	tcp := func(host, addresses string) service {
		return service{host: host, addresses: addresses, protocol: registry.TCP}
	}
	with := func(s service, p registry.Protocol) service { s.protocol = p; return s }
	to := func(s service, exportTo string) service { s.exportTo = exportTo; return s }
	of := func(s service, object string) service { s.object = object; return s }
	auto := func(s service) service { s.auto = true; return s }
	lost := func(host, what, to, why string) string {
		return "warning ServiceEntry a/" + host + " spec.ports[1]: connections to " + what + " do not reach host " + host + " from clients that see both, because that is already the place of " + to + " (from s), " + why
	}
	const older, other, any = "which is older or first by name", "whose protocol is not HTTP", "port 9 of addresses that no service has"
	tests := map[string]struct {
		services []service // the older first
		want     []string
	}{
		"alone":            {[]service{tcp("z", "10.0.0.1")}, nil},
		"one address":      {[]service{tcp("z", "10.0.0.1"), tcp("a", "10.0.0.2 10.0.0.1")}, []string{lost("a", "address 10.0.0.1 port 9", "z", older)}},
		"in IPv6":          {[]service{tcp("z", "::ffff:10.0.0.1"), tcp("a", "10.0.0.1")}, []string{lost("a", "address 10.0.0.1 port 9", "z", older)}},
		"an allocated one": {[]service{tcp("z", "10.0.0.1"), auto(tcp("a", "10.0.0.1"))}, []string{lost("a", "address 10.0.0.1 port 9", "z", older)}},
		"allocated ones": {
			[]service{auto(tcp("z", "10.0.0.1")), auto(tcp("a", "10.0.0.2"))},
			[]string{lost("a", any, "z", older+" (proxies that capture DNS reach it by its allocated address, 10.0.0.2)")},
		},
		"allocated, sniffed":  {[]service{auto(with(tcp("z", "10.0.0.1"), registry.Unknown)), auto(with(tcp("a", "10.0.0.2"), registry.Unknown))}, nil},
		"allocated, TLS":      {[]service{auto(with(tcp("z", "10.0.0.1"), registry.TLS)), auto(with(tcp("a", "10.0.0.2"), registry.TLS))}, nil},
		"two addresses":       {[]service{tcp("z", "10.0.0.1"), tcp("a", "10.0.0.2")}, nil},
		"one prefix":          {[]service{tcp("z", "10.1.0.0/8"), tcp("a", "10.2.0.0/8")}, []string{lost("a", "addresses 10.0.0.0/8 port 9", "z", older)}},
		"a prefix in another": {[]service{tcp("z", "10.0.0.0/8"), tcp("a", "10.2.0.0/16"), tcp("b", "10.2.0.1")}, nil},
		"no address":          {[]service{tcp("z", ""), tcp("a", "0.0.0.0/0"), tcp("b", "::")}, []string{lost("a", any, "z", older), lost("b", any, "z", older)}},
		"sniffed":             {[]service{tcp("z", "10.0.0.1"), with(tcp("a", "10.0.0.1"), registry.Unknown)}, []string{lost("a", "address 10.0.0.1 port 9 that are not HTTP", "z", older)}},
		"sniffed is older":    {[]service{with(tcp("z", "10.0.0.1"), registry.Unknown), tcp("a", "10.0.0.1")}, []string{lost("a", "address 10.0.0.1 port 9", "z", older)}},
		"sniffed twice": {
			[]service{tcp("z", "10.0.0.1"), with(tcp("y", "10.0.0.1"), registry.Unknown), with(tcp("a", "10.0.0.1"), registry.Unknown)},
			[]string{lost("a", "address 10.0.0.1 port 9", "z", older), lost("y", "address 10.0.0.1 port 9 that are not HTTP", "z", older)},
		},
		"sniffed by host":           {[]service{with(tcp("z", ""), registry.Unknown), with(tcp("a", ""), registry.Unknown)}, []string{lost("a", any+" that are not HTTP", "z", older)}},
		"sniffed, the server first": {[]service{with(tcp("z", "10.0.0.1"), registry.MySQL), with(tcp("a", "10.0.0.1"), registry.Unknown)}, []string{lost("a", "address 10.0.0.1 port 9", "z", older)}},
		"HTTP":                      {[]service{with(tcp("z", "10.0.0.1"), registry.HTTP), with(tcp("a", "10.0.0.1"), registry.GRPC)}, nil},
		"HTTP is older":             {[]service{with(tcp("z", "10.0.0.1"), registry.HTTP), tcp("a", "10.0.0.1")}, []string{lost("z", "address 10.0.0.1 port 9", "a", other)}},
		"HTTP without one":          {[]service{with(tcp("z", ""), registry.HTTP), tcp("a", "")}, nil},
		"HTTP in a prefix":          {[]service{with(tcp("z", "10.0.0.0/8"), registry.HTTP), tcp("a", "10.0.0.0/8")}, nil},
		"TLS by SNI":                {[]service{with(tcp("z", "10.0.0.1"), registry.TLS), with(tcp("a", "10.0.0.1"), registry.HTTPS), tcp("b", "10.0.0.1")}, nil},
		"TLS and HTTP":              {[]service{with(tcp("z", "10.0.0.1"), registry.TLS), with(tcp("a", "10.0.0.1"), registry.HTTP)}, []string{lost("a", "address 10.0.0.1 port 9", "z", other)}},
		"the server first":          {[]service{with(tcp("z", "10.0.0.1"), registry.MySQL), with(tcp("a", "10.0.0.1"), registry.TLS)}, []string{lost("a", "address 10.0.0.1 port 9", "z", older)}},
		"TLS is older":              {[]service{with(tcp("z", "10.0.0.1"), registry.TLS), with(tcp("a", "10.0.0.1"), registry.Mongo)}, []string{lost("a", "address 10.0.0.1 port 9", "z", older)}},
		"UDP":                       {[]service{with(tcp("z", "10.0.0.1"), registry.UDP), with(tcp("a", "10.0.0.1"), registry.UDP)}, nil},
		"apart":                     {[]service{to(tcp("z", "10.0.0.1"), "."), to(tcp("a", "10.0.0.1"), "b")}, nil},
		"the first for some":        {[]service{to(tcp("z", "10.0.0.1"), "."), tcp("a", "10.0.0.1")}, nil},
		"the second for some":       {[]service{tcp("z", "10.0.0.1"), to(tcp("a", "10.0.0.1"), "b .")}, []string{lost("a", "address 10.0.0.1 port 9", "z", older)}},
		"lost to one who lost": {
			[]service{to(with(tcp("z", "10.0.0.1"), registry.Redis), "b"), to(with(tcp("y", "10.0.0.1"), registry.MySQL), "b c"), to(with(tcp("a", "10.0.0.1"), registry.TLS), "b")}, nil,
		},
		"one entry": {[]service{of(tcp("z", "10.0.0.1"), "ServiceEntry a/e"), of(tcp("a", "10.0.0.1"), "ServiceEntry a/e")}, nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := emptyInputs()
			for i, s := range tc.services {
				made := &registry.Service{
					Key: registry.Key{Host: s.host, Namespace: "a"}, ExportTo: strings.Fields(s.exportTo), Created: time.Unix(int64(i), 0),
					Ports: []registry.Port{{Number: 8, Protocol: registry.UDP}, {Number: 9, Protocol: s.protocol}}, Source: "s", Object: s.object,
				}
				if made.Object == "" {
					made.Object = "ServiceEntry a/" + s.host
				}
				for _, a := range strings.Fields(s.addresses) {
					p, err := netip.ParsePrefix(a)
					if err != nil {
						ip := netip.MustParseAddr(a)
						p = netip.PrefixFrom(ip, ip.BitLen())
					}
					if s.auto {
						made.AutoAddresses = append(made.AutoAddresses, p.Addr())
					} else {
						made.Addresses = append(made.Addresses, p)
					}
				}
				in.Services = in.Services.With(made.Key, made)
			}
			if d := cmp.Diff(tc.want, shorten(crossingsOf(&crossings{}, map[place][]finding{}, in))); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

// One host in two namespaces is no clash: each client sees one of them.
func TestServiceClashesOfOneHost(t *testing.T) {
	t.Parallel()
	in := emptyInputs()
	for _, ns := range []string{"a", "b"} {
		k := registry.Key{Host: "db.com", Namespace: ns}
		in.Services = in.Services.With(k, &registry.Service{Key: k, Ports: []registry.Port{{Number: 9, Protocol: registry.TCP}}})
	}
	if got := crossingsOf(&crossings{}, map[place][]finding{}, in); got != nil {
		t.Errorf("found %v", got)
	}
}

// A finding about services says where both are declared, and follows them when they move.
func TestServiceClashPlaces(t *testing.T) {
	t.Parallel()
	in := emptyInputs()
	for _, name := range []string{"db", "x"} {
		aged(&in, config.ServiceEntry, "a", name, &config.Object{Spec: &networking.ServiceEntry{Hosts: []string{name}}})
		k := registry.Key{Host: name, Namespace: "a"}
		in.Services = in.Services.With(k, &registry.Service{Key: k, Object: "ServiceEntry a/" + name, Ports: []registry.Port{{Number: 9, Protocol: registry.TCP}}})
	}
	var c crossings
	kept := map[place][]finding{}
	want := "warning x:2: ServiceEntry a/x spec.ports[0]: connections to port 9 of addresses that no service has do not reach host x from clients that see both, because that is already the place of db " +
		"(ServiceEntry a/db, db:1), which is older or first by name: choose another address or port for one of the two, or export them to different namespaces"
	if d := cmp.Diff([]string{want}, crossingsOf(&c, kept, in)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	k := config.Key{Kind: config.ServiceEntry, Namespace: "a", Name: "db"}
	moved := *in.Objects.At(k)
	moved.Origin.Line = 7
	in.Objects = in.Objects.With(k, &moved)
	if d := cmp.Diff([]string{strings.Replace(want, "db:1", "db:7", 1)}, crossingsOf(&c, kept, in)); d != "" {
		t.Errorf("moved (-want +got):\n%s", d)
	}
}

// A service of a registry is told with the source that has it.
func TestServiceClashSource(t *testing.T) {
	t.Parallel()
	in := emptyInputs()
	for i, host := range []string{"first", "second"} {
		k := registry.Key{Host: host, Namespace: "a"}
		in.Services = in.Services.With(k, &registry.Service{Key: k, Created: time.Unix(int64(i), 0), Source: "consul:" + host, Object: "Consul service " + host, Ports: []registry.Port{{Number: 9, Protocol: registry.TCP}}})
	}
	got := crossingsOf(&crossings{}, map[place][]finding{}, in)
	if len(got) != 1 || !strings.Contains(got[0], "that is already the place of first (from consul:first), which is older") {
		t.Errorf("found %q", got)
	}
}
