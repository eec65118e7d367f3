package entry

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/registry"
)

// The ServiceEntry of a service describes it, except for what a ServiceEntry cannot describe.
func TestSynthetic(t *testing.T) {
	t.Parallel()
	web := registry.Service{
		Key:        registry.Key{Host: "web.service.consul", Namespace: "shop"},
		Resolution: registry.Static, ExportTo: []string{"."}, Labels: map[string]string{"team": "a"},
		SubjectAltNames: []string{"spiffe://x/ns/a/sa/b"}, Source: "consul:dc1",
		Ports: []registry.Port{
			{Number: 80, Name: "http", Protocol: registry.HTTP}, {Number: 9000, Name: "port-9000", TargetPort: 9001},
		},
		Addresses: []netip.Prefix{netip.MustParsePrefix("10.1.0.1/32"), netip.MustParsePrefix("10.2.0.0/16")},
	}
	external := web
	external.External, external.Resolution, external.Addresses = true, registry.DNS, []netip.Prefix{}
	endpoint := registry.Endpoint{
		Address: "10.0.0.1", Ports: map[string]uint32{"http": 8080}, Labels: map[string]string{"version": "1"},
		Locality: registry.Locality{Region: "eu", Zone: "a"}, Network: "n", Weight: 3,
		ServiceAccount: "web", Namespace: "shop", Workload: "registry-web.service.consul", TLSMode: "istio",
	}
	with := func(f func(*registry.Endpoint)) registry.Endpoint {
		e := endpoint
		f(&e)
		return e
	}
	type endpoints = []registry.Endpoint
	for name, c := range map[string]struct {
		service   registry.Service
		endpoints endpoints
		left      int // how many of endpoints the ServiceEntry has
		labels    map[string]string
	}{
		"no endpoints": {web, nil, 0, nil},
		"external": {
			external, endpoints{with(func(e *registry.Endpoint) { e.Address = "a.example.com" })}, 1, nil,
		},
		"two endpoints": {web, endpoints{endpoint, with(func(e *registry.Endpoint) {
			e.Address, e.Ports, e.Weight, e.Labels = "10.0.0.2", nil, 0, nil
		})}, 2, nil},
		"no mutual TLS": {
			web, endpoints{with(func(e *registry.Endpoint) { e.TLSMode, e.Labels = "", nil })}, 1,
			map[string]string{tlsModeLabel: "disabled"},
		},
		"no account": {
			web, endpoints{with(func(e *registry.Endpoint) { e.ServiceAccount, e.Labels = "", nil })}, 1,
			map[string]string{tlsModeLabel: "istio"},
		},
		"neither": {
			web, endpoints{with(func(e *registry.Endpoint) { e.ServiceAccount, e.TLSMode = "", "" })}, 1, nil,
		},
		"a port is missing": {web, endpoints{endpoint, with(func(e *registry.Endpoint) {
			e.Ports = map[string]uint32{"http": 80, "port-9000": 0}
		})}, 1, nil},
		"not healthy": {
			web, endpoints{endpoint, with(func(e *registry.Endpoint) { e.Health = registry.Unhealthy }),
				with(func(e *registry.Endpoint) { e.Health = registry.Draining })}, 1, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := Synthetic(registry.Instances{Service: &c.service,
				Endpoints: &registry.EndpointList{Items: c.endpoints}})
			if problems, ok := config.Accept(o); !ok || o.Hash == 0 {
				t.Fatalf("hash %d, %v", o.Hash, problems)
			}
			want := c.service
			want.Source, want.Object, want.Relayed, want.AutoAddress = source, o.Key.String(), true, true
			if d := cmp.Diff(want, *service(o, c.service.Host), cmpopts.EquateComparable(netip.Prefix{})); d != "" {
				t.Errorf("service (-want +got):\n%s", d)
			}
			left := append([]registry.Endpoint{}, c.endpoints[:c.left]...)
			if c.labels != nil {
				left[0].Labels = c.labels
			}
			if d := cmp.Diff(left, listed(o), cmpopts.EquateEmpty()); d != "" {
				t.Errorf("endpoints (-want +got):\n%s", d)
			}
		})
	}
}
