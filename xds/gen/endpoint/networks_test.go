package endpoint

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/xds/gen/destination"
	"github.com/ashore-mesh/ashore/xds/gen/gentest"
)

// gatewaysFor are the gateways by which the proxies of a network reach the others.
func gatewaysFor(t *testing.T, network, networks string) *push.NetworkGateways {
	t.Helper()
	m, problems := config.ParseNetworks("networks.yaml", []byte(networks))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	var addresses intern.Lists[netip.Addr]
	c := push.Build(nil, push.Inputs{Mesh: &push.Mesh{Config: config.DefaultMesh(), Networks: push.NewNetworks(m)}})
	n := push.Node{Network: network, IPs: addresses.Of([]netip.Addr{netip.MustParseAddr("10.0.0.9")})}
	return c.Scope(c.Classify(n)).NetworkGateways
}

// Endpoints of another network that take mutual TLS are replaced by its gateways, which have their
// weight and are as near as the nearest of them.
func TestAssignmentOfNetworks(t *testing.T) {
	t.Parallel()
	const one = "networks: {west: {gateways: [{address: 192.0.2.1}]}}"
	const two = "networks: {west: {gateways: [{address: 192.0.2.1}, {address: 192.0.2.2}]}, far: {gateways: [{address: 192.0.2.1}]}}"
	at := func(network, address, locality string, weight uint32, mutual bool) registry.Endpoint {
		e := registry.Endpoint{Network: network, Address: address, Locality: registry.ParseLocality(locality), Weight: weight}
		if mutual {
			e.TLSMode = registry.TLSModeIstio
		}
		return e
	}
	mixed := []registry.Endpoint{at("east", "10.0.0.1", "", 0, false), at("", "10.0.0.2", "", 3, true),
		at("west", "10.0.0.3", "", 0, true), at("west", "", "", 4, true), at("west", "10.0.0.4", "", 0, false)}
	places := []registry.Endpoint{at("west", "10.0.0.3", "north", 0, true), at("west", "10.0.0.4", "south", 2, true),
		at("east", "10.0.0.1", "south", 0, true)}
	unhealthy := at("west", "10.0.0.3", "", 0, true)
	unhealthy.Health = registry.Unhealthy
	failover := &destination.Ordering{OrderRule: destination.OrderRule{Setting: &networking.LocalityLoadBalancerSetting{},
		Failover: true}, Client: destination.Client{Locality: registry.ParseLocality("south")}}
	for name, c := range map[string]struct {
		own, networks string
		mutual        destination.Mutual
		forwarded     bool
		order         *destination.Ordering
		endpoints     []registry.Endpoint
		want          []string
	}{
		"one gateway": {own: "east", networks: one, mutual: destination.MutualAuto, endpoints: mixed,
			want: []string{"p0  w9: 10.0.0.1:80 10.0.0.2:80*3 192.0.2.1:15443*5"}},
		"two gateways": {own: "east", networks: two, mutual: destination.MutualAuto, endpoints: mixed,
			want: []string{"p0  w18: 10.0.0.1:80*2 10.0.0.2:80*6 192.0.2.1:15443*5 192.0.2.2:15443*5"}},
		"a gateway of two networks": {own: "east", networks: two, mutual: destination.MutualAuto,
			endpoints: append([]registry.Endpoint{at("far", "10.0.0.3", "", 0, true)}, mixed[2:]...),
			want:      []string{"p0  w12: 192.0.2.1:15443*7 192.0.2.2:15443*5"}},
		"the other side": {own: "west", networks: one, mutual: destination.MutualAuto, endpoints: mixed,
			want: []string{"p0  w6: 10.0.0.1:80 10.0.0.2:80*3 10.0.0.3:80 10.0.0.4:80"}},
		"a proxy without network": {networks: one, mutual: destination.MutualAuto, endpoints: mixed,
			want: []string{"p0  w9: 10.0.0.1:80 10.0.0.2:80*3 192.0.2.1:15443*5"}},
		"no mutual TLS": {own: "east", networks: one, endpoints: mixed, want: []string{"p0  w4: 10.0.0.1:80 10.0.0.2:80*3"}},
		"mutual TLS by a rule": {own: "east", networks: one, mutual: destination.MutualAlways, endpoints: mixed,
			want: []string{"p0  w10: 10.0.0.1:80 10.0.0.2:80*3 192.0.2.1:15443*6"}},
		"unhealthy": {own: "east", networks: one, mutual: destination.MutualAuto, endpoints: []registry.Endpoint{unhealthy}},
		"no gateways": {own: "east", networks: "networks: {west: {}}", mutual: destination.MutualAuto, endpoints: mixed,
			want: []string{"p0  w6: 10.0.0.1:80 10.0.0.2:80*3 10.0.0.3:80 10.0.0.4:80"}},
		"nearest": {own: "east", networks: one, mutual: destination.MutualAuto, order: failover, endpoints: places,
			want: []string{"p0 south w4: 10.0.0.1:80 192.0.2.1:15443*3"}},
		"forwarded": {own: "west", networks: one, mutual: destination.MutualAuto, forwarded: true, endpoints: mixed,
			want: []string{"p0  w4: 10.0.0.2:80*3 10.0.0.3:80"}},
		"forwarded elsewhere": {own: "east", networks: one, mutual: destination.MutualAuto, forwarded: true, endpoints: mixed,
			want: []string{"p0  w3: 10.0.0.2:80*3"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := Assignment{Service: gentest.Service("web", 1, "", "http/80"), Port: 80, Mutual: c.mutual, Forwarded: c.forwarded,
				Gateways: gatewaysFor(t, c.own, c.networks), Endpoints: &registry.EndpointList{Items: c.endpoints}}
			if c.order != nil {
				s.Order = destination.OrderOf(c.order.OrderRule, c.order.Client)
			}
			if diff := cmp.Diff(c.want, assigned(t, s)); diff != "" {
				t.Errorf("assignment (-want +got):\n%s", diff)
			}
		})
	}
}
