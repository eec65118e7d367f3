package push_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
)

// A proxy is in the network that its node names, or else its endpoints, or else its address. It serves
// no endpoint of another network that has its address.
func TestNetworkOfProxy(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		node      push.Node
		endpoints []string // their networks
		network   string
		inbound   int
	}{
		"none":           {node("a", "10.9.0.1"), nil, "", 0},
		"node":           {withNetwork(node("a", "10.1.0.1", "topology.istio.io/network=label"), "west"), []string{"west"}, "west", 1},
		"label":          {node("a", "10.1.0.1", "topology.istio.io/network=west"), []string{"west"}, "west", 1},
		"endpoint":       {node("a", "10.1.0.1"), []string{"west"}, "west", 1},
		"address":        {node("a", "10.1.0.1"), []string{""}, "east", 1},
		"other network":  {withNetwork(node("a", "10.1.0.1"), "west"), []string{"north"}, "west", 0},
		"of both":        {withNetwork(node("a", "10.1.0.1"), "west"), []string{"north", "west"}, "west", 1},
		"other than own": {withNetwork(node("a", "10.1.0.1"), "west"), []string{""}, "west", 1},
	} {
		e := newEditor()
		e.in.Mesh.Networks = networksOf("networks: {east: {endpoints: [{fromCidr: 10.1.0.0/16}], gateways: [{address: 192.0.2.1}]}}")
		for i, network := range c.endpoints {
			host := fmt.Sprintf("s%d.example.com", i)
			e.service("a", host)
			e.endpoints("a", host, "10.1.0.1")
			e.in.Endpoints.At(registry.Key{Host: host, Namespace: "a"}).Items[0].Network = network
		}
		f := push.Build(nil, e.in).Classify(c.node)
		if got := f.Own.Inbound.Len(); f.Network != c.network || got != c.inbound {
			t.Errorf("%s: network %q with %d inbound ports, want %q with %d", name, f.Network, got, c.network, c.inbound)
		}
	}
}

func withNetwork(n push.Node, network string) push.Node {
	n.Network = network
	return n
}

func TestNetworkGateways(t *testing.T) {
	t.Parallel()
	e := newEditor()
	e.in.Mesh.Networks = networksOf(`networks:
  east: {gateways: [{address: 192.0.2.1}]}
  west: {gateways: [{address: 192.0.2.2}, {address: 192.0.2.2}, {address: 192.0.2.3, port: 443}, {address: "2001:db8::2"}]}
  south: {gateways: [{registryServiceName: gw.example.com, port: 80}, {registryServiceName: gw.example.com, port: 90}]}
  north: {gateways: [{registryServiceName: nobody.example.com}]}
  open: {}
`)
	e.service("a", "gw.example.com")
	e.endpoints("a", "gw.example.com", "10.0.0.1", "10.0.0.2", "gw2.example.com")
	e.in.Endpoints.At(registry.Key{Host: "gw.example.com", Namespace: "a"}).Items[1].Health = registry.Unhealthy
	c := push.Build(nil, e.in)
	scope := func(n push.Node) *push.Scope { return c.Scope(c.Classify(n)) }
	v4, v6 := withNetwork(node("a", "10.9.0.1"), "east"), withNetwork(node("b", "2001:db8::9"), "east")
	for _, test := range []struct {
		node          push.Node
		network, want string
	}{
		{v4, "", "direct"}, {v4, "east", "direct"}, {v4, "open", "direct"}, {v4, "unknown", "direct"},
		{v4, "west", "192.0.2.2:15443 192.0.2.3:443"}, {v6, "west", "[2001:db8::2]:15443"},
		{v4, "south", "10.0.0.1:90 10.0.0.1:8080"}, {v4, "north", ""}, {v6, "south", ""},
		{node("a", "10.9.0.1"), "east", "192.0.2.1:15443"},
	} {
		var got []string
		gateways, direct := scope(test.node).NetworkGateways.To(test.network)
		for _, g := range gateways {
			got = append(got, g.String())
		}
		if direct {
			got = append(got, "direct")
		}
		if text := strings.Join(got, " "); text != test.want {
			t.Errorf("from %q of %v to %q: %q, want %q", test.node.Network, test.node.IPs.Items(), test.network, text, test.want)
		}
	}
	if a := scope(v4).NetworkGateways; a != scope(withNetwork(node("b", "10.8.0.1"), "east")).NetworkGateways {
		t.Error("two proxies of one network have different gateways")
	} else if a.Scale() != 2 {
		t.Errorf("scale %d, want 2", a.Scale())
	}
	e.endpoints("a", "gw.example.com", "10.0.0.7")
	c = push.Build(c, e.in)
	if got, _ := scope(v4).NetworkGateways.To("south"); len(got) != 2 || got[0].String() != "10.0.0.7:90" {
		t.Errorf("gateways %v after their service has another endpoint, want 10.0.0.7:90 first", got)
	}
	key := registry.Key{Host: "gw.example.com", Namespace: "a"}
	balanced := *e.in.Services.At(key)
	balanced.ExternalAddresses = []netip.Addr{netip.MustParseAddr("192.0.2.9")}
	e.in.Services = e.in.Services.With(key, &balanced)
	c = push.Build(c, e.in)
	if got, _ := scope(v4).NetworkGateways.To("south"); len(got) != 2 || got[0].String() != "192.0.2.9:80" {
		t.Errorf("gateways %v after their service has a load balancer, want that", got)
	}
}

// Endpoints are in their own network, or else in that of their source or address.
func TestNetworkOfEndpoint(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, func(f *fixture) {
			f.c.name = "consul:dc1"
			f.cfg.Mesh.Networks = networksOf("networks: {east: {endpoints: [{fromCidr: 10.1.0.0/16}]}, west: {endpoints: [{fromRegistry: dc1}]}}")
		})
		defer f.stop()
		f.fill()
		f.services(f.c, "one=10.1.0.1")
		f.services(f.d, "two=10.1.0.1 three=10.2.0.1 four=::ffff:10.1.0.9 five=name.example.com")
		f.want("all delivered", "one=1 consul/five=name.example.com consul/four=::ffff:10.1.0.9 consul/one=10.1.0.1 "+
			"consul/three=10.2.0.1 consul/two=10.1.0.1")
		got := map[string]string{}
		for k, l := range f.contexts.last().Inputs().Endpoints.All() {
			got[k.Host] = l.Items[0].Network
		}
		for host, want := range map[string]string{"one": "west", "two": "east", "three": "", "four": "east", "five": ""} {
			if got[host] != want {
				t.Errorf("%s is in network %q, want %q", host, got[host], want)
			}
		}
	})
}

func TestForwards(t *testing.T) {
	t.Parallel()
	auto := networking.ServerTLSSettings_AUTO_PASSTHROUGH
	gateway := &config.Object{Key: config.Key{Kind: config.Gateway, Namespace: "infra", Name: "gw"}}
	internal := &registry.Service{Key: registry.Key{Host: "web.shop.svc.cluster.local", Namespace: "shop"}}
	external := &registry.Service{Key: internal.Key, External: true}
	wild := &registry.Service{Key: registry.Key{Host: "*.local", Namespace: "shop"}}
	for _, c := range []struct {
		mode    networking.ServerTLSSettings_TLSmode
		hosts   []string
		service *registry.Service
		want    bool
	}{
		{auto, []string{"*.local"}, internal, true}, {auto, []string{"*"}, internal, true},
		{auto, []string{"a.local", "web.shop.svc.cluster.local"}, internal, true}, {auto, []string{"a.local"}, internal, false},
		{auto, []string{"shop/*.local"}, internal, true}, {auto, []string{"*/*.local"}, internal, true},
		{auto, []string{"infra/*.local"}, internal, false}, {auto, []string{"./*.local"}, internal, false},
		{auto, []string{"*.local"}, external, false}, {auto, []string{"*.local"}, wild, false},
		{networking.ServerTLSSettings_PASSTHROUGH, []string{"*.local"}, internal, false},
	} {
		server := &networking.Server{Hosts: c.hosts, Tls: &networking.ServerTLSSettings{Mode: c.mode}}
		if got := push.Forwards(gateway, server, c.service); got != c.want {
			t.Errorf("%v %v forwards to %s: %v, want %v", c.mode, c.hosts, c.service.Host, got, c.want)
		}
	}
}

// The destinations of a router are the services that its routes name and those that it forwards to.
func TestForwardedDestinations(t *testing.T) {
	t.Parallel()
	e := newEditor()
	for _, host := range []string{"a.local", "b.local", "c.example.com"} {
		e.service("a", host)
	}
	e.put(config.Gateway, "a", "gw", &networking.Gateway{Servers: []*networking.Server{
		{Port: &networking.Port{Number: 15443, Name: "tls", Protocol: "TLS"}, Hosts: []string{"*.local"},
			Tls: &networking.ServerTLSSettings{Mode: networking.ServerTLSSettings_AUTO_PASSTHROUGH}},
		{Port: &networking.Port{Number: 80, Name: "http", Protocol: "HTTP"}, Hosts: []string{"*"}},
	}})
	e.put(config.VirtualService, "a", "vs", &networking.VirtualService{Hosts: []string{"x"}, Gateways: []string{"gw"},
		Http: []*networking.HTTPRoute{{Route: []*networking.HTTPRouteDestination{
			{Destination: &networking.Destination{Host: "b.local"}}, {Destination: &networking.Destination{Host: "c.example.com"}}}}}})
	n := node("a", "10.0.0.9")
	n.Type = push.Router
	c := push.Build(nil, e.in)
	var got []string
	for _, d := range c.Scope(c.Classify(n)).Destinations.Items() {
		got = append(got, fmt.Sprintf("%s %v %v", d.Service.Host, d.Forwarded, d.Unrouted))
	}
	if want := []string{"a.local true true", "b.local true false", "c.example.com false false"}; !slices.Equal(got, want) {
		t.Errorf("destinations (forwarded, unrouted) %q, want %q", got, want)
	}
}
