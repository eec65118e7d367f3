package config

import (
	"slices"
	"strings"
	"testing"

	"github.com/ashore-mesh/ashore/internal/feed"
)

const goodNetworks = `networks:
  east:
    endpoints:
    - fromCidr: 10.1.0.0/16
    - fromCidr: 10.9.0.7
    - fromRegistry: consul-east
    gateways:
    - {address: 192.0.2.1, port: 15444}
    - address: "2001:db8::1"
  west:
    endpoints: [{fromCidr: 10.2.0.0/16}]
    gateways: [{registryServiceName: gateway.infra.svc.cluster.local}]
  edge: {}
`

func TestParseNetworks(t *testing.T) {
	t.Parallel()
	m, problems := ParseNetworks("networks.yaml", []byte(goodNetworks))
	if len(problems) > 0 {
		t.Fatalf("problems: %v", problems)
	}
	var ports []uint32
	for _, g := range append(m.Networks["east"].Gateways, m.Networks["west"].Gateways...) {
		ports = append(ports, g.Port)
	}
	if want := []uint32{15444, 15443, 15443}; !slices.Equal(ports, want) {
		t.Errorf("ports of gateways %d, want %d", ports, want)
	}
	for name, c := range map[string]struct{ text, want string }{
		"unknown field":    {"networks: {a: {gateway: []}}", `networks.yaml:1: networks[a].gateway: unknown field "gateway"`},
		"name":             {"networks: {'a b': {}}", "is not one of a label"},
		"no range":         {"networks: {a: {endpoints: [{fromCidr: 10.1.0.0/33}]}}", `"10.1.0.0/33" is not a range of addresses`},
		"empty endpoints":  {"networks: {a: {endpoints: [{}]}}", "fromCidr or fromRegistry is missing"},
		"overlap":          {"networks:\n  a: {endpoints: [{fromCidr: 10.0.0.0/8}]}\n  b: {endpoints: [{fromCidr: 10.1.0.0/16}]}", "networks.yaml:3: networks[b].endpoints[0].fromCidr: 10.1.0.0/16 overlaps with 10.0.0.0/8 of network a"},
		"registry twice":   {"networks: {a: {endpoints: [{fromRegistry: r}]}, b: {endpoints: [{fromRegistry: r}]}}", `"r" is in network a too`},
		"registry name":    {"networks: {a: {endpoints: [{fromRegistry: R_1}]}}", "networks[a].endpoints[0].fromRegistry"},
		"gateway name":     {"networks: {a: {gateways: [{address: gw.example.com}]}}", "not an IP address is not supported yet"},
		"gateway service":  {"networks: {a: {gateways: [{registryServiceName: '*.x'}]}}", "is a wildcard"},
		"gateway missing":  {"networks: {a: {gateways: [{port: 1}]}}", "address or registryServiceName is missing"},
		"gateway port":     {"networks: {a: {gateways: [{address: 10.0.0.1, port: 65536}]}}", "from 1 to 65535, not 65536"},
		"gateway locality": {"networks: {a: {gateways: [{address: 10.0.0.1, locality: x}]}}", "so this has no effect"},
		"two documents":    {"networks: {}\n---\nnetworks: {}", "want one document"},
		"not an object":    {"[]", "want an object with fields (networks)"},
		"syntax":           {"networks: {", "networks.yaml:1"},
	} {
		_, problems := ParseNetworks("networks.yaml", []byte(c.text))
		if len(problems) != 1 || !strings.Contains(problems[0].String(), c.want) {
			t.Errorf("%s: got %v, want one problem with %q", name, problems, c.want)
		} else if problems[0].IsError() == (name == "gateway locality") {
			t.Errorf("%s: severity %v", name, problems[0].Severity)
		}
	}
}

// FuzzNetworks wants no input to crash, and no accepted network without a reachable gateway.
func FuzzNetworks(f *testing.F) {
	f.Add([]byte(goodNetworks))
	f.Add([]byte("networks: {a: &a {endpoints: [{fromCidr: 10.0.0.1/8}]}, b: *a}"))
	f.Add([]byte(`{"networks": {"a": {"gateways": [{"port": 0}]}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, problems := ParseNetworks("networks.yaml", data)
		if slices.ContainsFunc(problems, func(p Problem) bool { return p.Severity == feed.Error }) {
			return
		}
		for name, n := range m.Networks {
			for _, e := range n.Endpoints {
				if _, err := ParseRange(e.GetFromCidr()); err != nil && e.GetFromRegistry() == "" {
					t.Errorf("accepted %s with endpoints %v", name, e)
				}
			}
			for _, g := range n.Gateways {
				if g.Port == 0 || g.Port > 65535 || g.GetAddress() == "" && g.GetRegistryServiceName() == "" {
					t.Errorf("accepted %s with gateway %v", name, g)
				}
			}
		}
	})
}
