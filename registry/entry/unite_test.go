package entry_test

import (
	"strings"
	"testing"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/google/go-cmp/cmp"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/registry/entry"
)

// declaration is a ServiceEntry of the host x.y: ports are "number name protocol".
func declaration(edit func(*networking.ServiceEntry), ports ...*networking.ServicePort) *networking.ServiceEntry {
	s := &networking.ServiceEntry{
		Hosts: []string{"x.y"}, Location: networking.ServiceEntry_MESH_INTERNAL, Resolution: networking.ServiceEntry_STATIC,
		Addresses: []string{"240.0.0.9"}, Ports: ports,
	}
	if edit != nil {
		edit(s)
	}
	return s
}

// Several ServiceEntries of one host: the ports of all, each with the endpoints of the declarations
// that have it.
func TestUnite(t *testing.T) {
	t.Parallel()
	port := func(number uint32, name, protocol string) *networking.ServicePort {
		return &networking.ServicePort{Number: number, Name: name, Protocol: protocol}
	}
	at := func(addresses ...string) func(*networking.ServiceEntry) {
		return func(s *networking.ServiceEntry) {
			for _, a := range addresses {
				s.Endpoints = append(s.Endpoints, &networking.WorkloadEntry{Address: a})
			}
		}
	}
	selecting := func(s *networking.ServiceEntry) {
		s.WorkloadSelector = &networking.WorkloadSelector{Labels: map[string]string{"app": "web"}}
	}
	dns := func(s *networking.ServiceEntry) { s.Resolution = networking.ServiceEntry_DNS }
	const head = "shop/x.y [240.0.0.9/32] auto [] ports "
	const decides = "host x.y is declared by ServiceEntry shop/a too, which decides (it comes first by name, and neither is older): "
	tests := map[string]struct {
		declared []*networking.ServiceEntry // called a, b, c
		want     string
	}{
		"other ports": {
			[]*networking.ServiceEntry{
				declaration(at("10.0.0.1"), port(80, "http", "HTTP")),
				declaration(at("10.0.0.2"), &networking.ServicePort{Number: 443, Name: "tls", Protocol: "TLS", TargetPort: 8443}),
			},
			head + `[{80 http HTTP 0} {443 tls TLS 8443}] resolution 0 external false
  10.0.0.1 ports map[tls:0] shop/a
  10.0.0.2 ports map[http:0] shop/b
`,
		},
		"one name for two numbers": {
			[]*networking.ServiceEntry{declaration(at("10.0.0.1"), port(1, "tcp", "TCP")), declaration(at("10.0.0.2"), port(2, "tcp", "TCP"))},
			head + `[{1 tcp TCP 0} {2 tcp-2 TCP 0}] resolution 0 external false
  10.0.0.1 ports map[tcp-2:0] shop/a
  10.0.0.2 ports map[tcp:0] shop/b
`,
		},
		"one number, two names": {
			[]*networking.ServiceEntry{
				declaration(at("10.0.0.1"), port(80, "http", "HTTP")),
				declaration(func(s *networking.ServiceEntry) {
					s.Endpoints = []*networking.WorkloadEntry{{Address: "10.0.0.2", Ports: map[string]uint32{"web": 8080}}, {Address: "10.0.0.3"}}
				}, &networking.ServicePort{Number: 80, Name: "web", Protocol: "HTTP", TargetPort: 81}),
			},
			head + `[{80 http HTTP 0}] resolution 0 external false
  10.0.0.1 ports map[] shop/a
  10.0.0.2 ports map[http:8080] shop/b
  10.0.0.3 ports map[http:81] shop/b
`,
		},
		"one address in both: each port once": {
			[]*networking.ServiceEntry{
				declaration(at("10.0.0.1"), port(80, "http", "HTTP")),
				declaration(at("10.0.0.1", "10.0.0.2"), port(80, "http", "HTTP"), port(90, "admin", "HTTP")),
				declaration(at("10.0.0.1"), port(80, "http", "HTTP")),
			},
			head + `[{80 http HTTP 0} {90 admin HTTP 0}] resolution 0 external false
  10.0.0.1 ports map[admin:0] shop/a
  10.0.0.1 ports map[http:0] shop/b
  10.0.0.2 ports map[] shop/b
`,
		},
		"one workload in both": {
			[]*networking.ServiceEntry{declaration(selecting, port(80, "http", "HTTP")), declaration(selecting, port(90, "admin", "HTTP"))},
			head + `[{80 http HTTP 0} {90 admin HTTP 0}] resolution 0 external false
  10.0.0.7 ports map[] shop/w
`,
		},
		"hosts that resolve themselves": {
			[]*networking.ServiceEntry{declaration(dns, port(80, "http", "HTTP")), declaration(dns, port(443, "tls", "TLS"))},
			head + `[{80 http HTTP 0} {443 tls TLS 0}] resolution 1 external false
  x.y ports map[] shop/
`,
		},
		"a socket": {
			[]*networking.ServiceEntry{declaration(at("10.0.0.1"), port(80, "http", "HTTP")), declaration(at("unix:///run/x"), port(90, "admin", "HTTP"))},
			head + `[{80 http HTTP 0} {90 admin HTTP 0}] resolution 0 external false
  10.0.0.1 ports map[admin:0] shop/a
  unix:///run/x ports map[http:0] shop/b
`,
		},
		"another protocol": {
			[]*networking.ServiceEntry{
				declaration(at("10.0.0.1"), port(80, "http", "HTTP")), declaration(at("10.0.0.2"), port(80, "tcp", "TCP"), port(81, "more", "TCP")),
				declaration(at("10.0.0.3"), port(80, "x", "")),
			},
			head + `[{80 http HTTP 0} {81 more TCP 0}] resolution 0 external false
  10.0.0.1 ports map[more:0] shop/a
  10.0.0.2 ports map[http:0] shop/b
  10.0.0.3 ports map[more:0] shop/c
  warning: ServiceEntry shop/b spec.hosts: ` + decides + `its port 80 speaks TCP, not HTTP, so its endpoints do not serve that port; declare both alike
`,
		},
		"another resolution": {
			[]*networking.ServiceEntry{declaration(at("10.0.0.1"), port(80, "http", "HTTP")), declaration(dns, port(443, "tls", "TLS"))},
			head + `[{80 http HTTP 0}] resolution 0 external false
  10.0.0.1 ports map[] shop/a
  warning: ServiceEntry shop/b spec.hosts: ` + decides + `its resolution is DNS, not STATIC, so its ports and endpoints are not used; declare both alike
`,
		},
		"a private declaration": {
			[]*networking.ServiceEntry{declaration(at("10.0.0.1"), port(80, "http", "HTTP")), declaration(func(s *networking.ServiceEntry) {
				at("10.0.0.2")(s)
				s.ExportTo = []string{"."}
			}, port(80, "http", "HTTP"), port(90, "admin", "HTTP"))},
			head + `[{80 http HTTP 0}] resolution 0 external false
  10.0.0.1 ports map[] shop/a
  warning: ServiceEntry shop/b spec.hosts: ` + decides + `its exportTo is ["."], not [], so its ports and endpoints are not used; declare both alike
`,
		},
		"other settings": {
			[]*networking.ServiceEntry{declaration(at("10.0.0.1"), port(80, "http", "HTTP")), declaration(func(s *networking.ServiceEntry) {
				s.Location, s.Addresses, s.ExportTo, s.SubjectAltNames = networking.ServiceEntry_MESH_EXTERNAL, []string{"240.0.0.8"}, []string{"."}, []string{"san"}
			}, port(80, "http", "HTTP"))},
			head + `[{80 http HTTP 0}] resolution 0 external false
  10.0.0.1 ports map[] shop/a
  warning: ServiceEntry shop/b spec.hosts: ` + decides + `its location is MESH_EXTERNAL, not MESH_INTERNAL; its addresses are [240.0.0.8/32], not [240.0.0.9/32]; ` +
				`its exportTo is ["."], not [], so its ports and endpoints are not used; its subjectAltNames are ["san"], not []; declare both alike
`,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			objs := with(objects{}, config.WorkloadEntry, "w", &networking.WorkloadEntry{Address: "10.0.0.7"}, "app=web")
			for i, s := range tc.declared {
				objs = with(objs, config.ServiceEntry, string(rune('a'+i)), s)
			}
			got := text(entry.New(&ledger{}).Derive(t.Context(), objs))
			for _, label := range []string{" labels map[app:web]", " labels map[]", ` locality  weight 0 sa "" tls "" workload`} {
				got = strings.ReplaceAll(got, label, "")
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

// A ServiceEntry that differs from one of another source names that source, and counts as a
// contradiction.
func TestUniteSources(t *testing.T) {
	t.Parallel()
	objs := objects{}
	for name, source := range map[string]string{"a": "one", "b": "one", "c": "two"} {
		protocol := map[bool]string{true: "HTTP", false: "TCP"}[name == "a"]
		objs = with(objs, config.ServiceEntry, name, declaration(nil, &networking.ServicePort{Number: 80, Name: "http", Protocol: protocol}))
		objs.At(config.Key{Kind: config.ServiceEntry, Namespace: "shop", Name: name}).Origin.Source = source
	}
	problems := entry.New(&ledger{}).Derive(t.Context(), objs).Updates[0].Problems
	if len(problems) != 2 {
		t.Fatalf("problems are %v, want two", problems)
	}
	for i, want := range []struct {
		source, by  string
		contradicts bool
	}{{"one", "ServiceEntry shop/a too", false}, {"two", "ServiceEntry shop/a of one too", true}} {
		if p := problems[i]; p.Source != want.source || p.Contradicts != want.contradicts || !strings.Contains(p.Text, want.by) {
			t.Errorf("problem %d is %+v, want %+v", i, p, want)
		}
	}
}
