package endpoint

import (
	"fmt"
	"math"
	"strings"
	"testing"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/xds/gen/destination"
	"github.com/ashore-mesh/ashore/xds/gen/gentest"
)

// summary writes out an assignment: "p0 east w3: 10.0.0.1:80*3 …" for each group.
func summary(a *endpointv3.ClusterLoadAssignment) []string {
	var out []string
	for _, g := range a.Endpoints {
		var b strings.Builder
		fmt.Fprintf(&b, "p%d %s w%d:", g.Priority, registry.Locality{Region: g.GetLocality().GetRegion(),
			Zone: g.GetLocality().GetZone(), SubZone: g.GetLocality().GetSubZone()}, g.LoadBalancingWeight.GetValue())
		for _, e := range g.LbEndpoints {
			if p := e.GetEndpoint().Address.GetPipe(); p != nil {
				fmt.Fprintf(&b, " %s", p.Path)
			} else {
				s := e.GetEndpoint().Address.GetSocketAddress()
				fmt.Fprintf(&b, " %s:%d", s.Address, s.GetPortValue())
			}
			if e.LoadBalancingWeight != nil {
				fmt.Fprintf(&b, "*%d", e.LoadBalancingWeight.Value)
			}
		}
		out = append(out, b.String())
	}
	return out
}

// assigned is what a spec's endpoints become, by way of the encoded message.
func assigned(t *testing.T, s Assignment) []string {
	t.Helper()
	r := buildAssignment(s)
	m := &endpointv3.ClusterLoadAssignment{}
	gentest.SameAsLibrary(t, r, m)
	if m.ClusterName != r.Name {
		t.Errorf("the assignment is for %q, want %q", m.ClusterName, r.Name)
	}
	return summary(m)
}

func TestAssignment(t *testing.T) {
	t.Parallel()
	web := gentest.Service("web", 1, "", "http/80")
	target := gentest.Service("web", 1, "", "http/80")
	target.Ports[0].TargetPort = 8080
	at := func(address string, more ...func(*registry.Endpoint)) registry.Endpoint {
		e := registry.Endpoint{Address: address}
		for _, f := range more {
			f(&e)
		}
		return e
	}
	weight := func(n uint32) func(*registry.Endpoint) { return func(e *registry.Endpoint) { e.Weight = n } }
	in := func(l string) func(*registry.Endpoint) {
		return func(e *registry.Endpoint) { e.Locality = registry.ParseLocality(l) }
	}
	health := func(h registry.Health) func(*registry.Endpoint) { return func(e *registry.Endpoint) { e.Health = h } }
	label := func(k, v string) func(*registry.Endpoint) {
		return func(e *registry.Endpoint) { e.Labels = map[string]string{k: v} }
	}
	for name, c := range map[string]struct {
		service   *registry.Service
		subset    *networking.Subset
		endpoints []registry.Endpoint
		order     *destination.Ordering
		want      []string
	}{
		"none": {service: web},
		"sorted, target port, own port": {
			service: target,
			endpoints: []registry.Endpoint{at("10.0.0.2"), at("10.0.0.1",
				func(e *registry.Endpoint) { e.Ports = map[string]uint32{"http": 99} })},
			want: []string{"p0  w2: 10.0.0.1:99 10.0.0.2:8080"},
		},
		// a name among addresses cannot be connected to; Envoy would refuse all of them
		"names left out, sockets without port": {
			service: web,
			endpoints: []registry.Endpoint{at("a.example.com"), at("unix:///run/a"), at("unix://@abstract"),
				at("fd00::1"), at("")},
			want: []string{"p0  w3: fd00::1:80 /run/a @abstract"},
		},
		"only the healthy": {
			service: web,
			endpoints: []registry.Endpoint{at("10.0.0.1", health(registry.Unhealthy)),
				at("10.0.0.2", health(registry.Draining)), at("10.0.0.3")},
			want: []string{"p0  w1: 10.0.0.3:80"},
		},
		"all unhealthy": {service: web, endpoints: []registry.Endpoint{at("10.0.0.1", health(registry.Unhealthy))}},
		"subset": {
			service: web, subset: &networking.Subset{Name: "v1", Labels: map[string]string{"v": "1"}},
			endpoints: []registry.Endpoint{at("10.0.0.1", label("v", "1")), at("10.0.0.2", label("v", "2")),
				at("10.0.0.3", label("w", "1"))},
			want: []string{"p0  w1: 10.0.0.1:80"},
		},
		"subset without labels is everything": {
			service: web, subset: &networking.Subset{Name: "all"}, endpoints: []registry.Endpoint{at("10.0.0.1")},
			want: []string{"p0  w1: 10.0.0.1:80"},
		},
		// Envoy tells endpoints apart by address alone
		"one address twice": {
			service: web,
			endpoints: []registry.Endpoint{at("10.0.0.1", in("west"), weight(5)), at("10.0.0.1", in("east"), weight(7)),
				at("10.0.0.2", in("west"))},
			want: []string{"p0 east w7: 10.0.0.1:80*7", "p0 west w1: 10.0.0.2:80"},
		},
		"localities": {
			service: web,
			endpoints: []registry.Endpoint{at("10.0.0.3", in("west/a")), at("10.0.0.2", in("east/a/1"), weight(2)),
				at("10.0.0.1"), at("10.0.0.4", in("west/a"), weight(4))},
			want: []string{"p0  w1: 10.0.0.1:80", "p0 east/a/1 w2: 10.0.0.2:80*2",
				"p0 west/a w5: 10.0.0.3:80 10.0.0.4:80*4"},
		},
		// Envoy refuses an assignment whose weights overflow 32 bits
		"weights that overflow": {
			service: web,
			endpoints: []registry.Endpoint{at("10.0.0.1", weight(math.MaxUint32)),
				at("10.0.0.2", weight(math.MaxUint32)), at("10.0.0.3", weight(1))},
			want: []string{"p0  w200001: 10.0.0.1:80*100000 10.0.0.2:80*100000 10.0.0.3:80"},
		},
		"failover": {
			service: web,
			endpoints: []registry.Endpoint{at("10.0.0.1", in("west")), at("10.0.0.2", in("east/b")),
				at("10.0.0.3", in("east/a/1")), at("10.0.0.4", in("east/a/2"))},
			order: &destination.Ordering{OrderRule: destination.OrderRule{Setting: &networking.LocalityLoadBalancerSetting{}, Failover: true},
				Client: destination.Client{Locality: registry.ParseLocality("east/a/2")}},
			want: []string{"p0 east/a/2 w1: 10.0.0.4:80", "p1 east/a/1 w1: 10.0.0.3:80",
				"p2 east/b w1: 10.0.0.2:80", "p3 west w1: 10.0.0.1:80"},
		},
		"failover does not skip priorities": {
			service:   web,
			endpoints: []registry.Endpoint{at("10.0.0.1", in("west")), at("10.0.0.2", in("east/b"))},
			order: &destination.Ordering{OrderRule: destination.OrderRule{Setting: &networking.LocalityLoadBalancerSetting{}, Failover: true},
				Client: destination.Client{Locality: registry.ParseLocality("east/a")}},
			want: []string{"p0 east/b w1: 10.0.0.2:80", "p1 west w1: 10.0.0.1:80"},
		},
		"failover to a region": {
			service:   web,
			endpoints: []registry.Endpoint{at("10.0.0.1", in("a")), at("10.0.0.2", in("b"))},
			order: &destination.Ordering{OrderRule: destination.OrderRule{Setting: &networking.LocalityLoadBalancerSetting{
				Failover: []*networking.LocalityLoadBalancerSetting_Failover{{From: "x", To: "a"},
					{From: "c", To: "b"}},
			}, Failover: true}, Client: destination.Client{Locality: registry.ParseLocality("c")}},
			want: []string{"p0 b w1: 10.0.0.2:80", "p1 a w1: 10.0.0.1:80"},
		},
		"failover by labels, then region": {
			service: web,
			endpoints: []registry.Endpoint{at("10.0.0.1", label("v", "1"), in("a")),
				at("10.0.0.2", label("v", "1"), in("b")), at("10.0.0.3", in("b"))},
			order: &destination.Ordering{OrderRule: destination.OrderRule{Setting: &networking.LocalityLoadBalancerSetting{
				FailoverPriority: []string{"v=1"}, Failover: []*networking.LocalityLoadBalancerSetting_Failover{{From: "a", To: "b"}},
			}, Failover: true}, Client: destination.Client{Locality: registry.ParseLocality("a")}},
			want: []string{"p0 a w1: 10.0.0.1:80", "p1 b w1: 10.0.0.2:80", "p2 b w1: 10.0.0.3:80"},
		},
		"a port that it does not have": {
			service: web,
			endpoints: []registry.Endpoint{
				at("10.0.0.1", func(e *registry.Endpoint) { e.Ports = map[string]uint32{web.Ports[0].Name: 0} }), at("10.0.0.2"),
				at("unix:///web", func(e *registry.Endpoint) { e.Ports = map[string]uint32{web.Ports[0].Name: 0} }),
			},
			want: []string{"p0  w1: 10.0.0.2:80"},
		},
		"shares": {
			service: web,
			endpoints: []registry.Endpoint{at("10.0.0.1", in("a/1"), weight(3)), at("10.0.0.2", in("a/2")),
				at("10.0.0.3", in("b")), at("10.0.0.4", in("c"))},
			order: &destination.Ordering{OrderRule: destination.OrderRule{Setting: shares("a", map[string]uint32{"a/*": 80, "b": 20}), Failover: false},
				Client: destination.Client{Locality: registry.ParseLocality("a")}},
			want: []string{"p0 a/1 w60: 10.0.0.1:80*3", "p0 a/2 w20: 10.0.0.2:80", "p0 b w20: 10.0.0.3:80"},
		},
		"shares of nothing": {
			service: web, endpoints: []registry.Endpoint{at("10.0.0.1", in("a")), at("10.0.0.2", in("b"))},
			order: &destination.Ordering{OrderRule: destination.OrderRule{Setting: shares("a", map[string]uint32{"a": 0, "b": 100}), Failover: false},
				Client: destination.Client{Locality: registry.ParseLocality("a")}},
			want: []string{"p0 b w100: 10.0.0.2:80"},
		},
		"the more specific pattern counts": {
			service: web, endpoints: []registry.Endpoint{at("10.0.0.1", in("a/1")), at("10.0.0.2", in("a/2"))},
			order: &destination.Ordering{OrderRule: destination.OrderRule{Setting: shares("*", map[string]uint32{"a/*": 90, "a/1": 10}), Failover: false}, Client: destination.Client{}},
			want:  []string{"p0 a/1 w10: 10.0.0.1:80", "p0 a/2 w90: 10.0.0.2:80"},
		},
		"shares for clients elsewhere": {
			service: web, endpoints: []registry.Endpoint{at("10.0.0.1", in("a"))},
			order: &destination.Ordering{OrderRule: destination.OrderRule{Setting: shares("b", map[string]uint32{"b": 100}), Failover: false},
				Client: destination.Client{Locality: registry.ParseLocality("a")}},
			want: []string{"p0 a w1: 10.0.0.1:80"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := Assignment{Service: c.service, Port: 80, Subset: c.subset,
				Endpoints: &registry.EndpointList{Items: c.endpoints}}
			if c.order != nil {
				s.Order = destination.OrderOf(c.order.OrderRule, c.order.Client)
			}
			if diff := cmp.Diff(c.want, assigned(t, s)); diff != "" {
				t.Errorf("assignment (-want +got):\n%s", diff)
			}
		})
	}
	t.Run("no list", func(t *testing.T) {
		t.Parallel()
		if got := assigned(t, Assignment{Service: web, Port: 80}); got != nil {
			t.Errorf("got %v, want nothing", got)
		}
	})
}

func shares(from string, to map[string]uint32) *networking.LocalityLoadBalancerSetting {
	return &networking.LocalityLoadBalancerSetting{Distribute: []*networking.LocalityLoadBalancerSetting_Distribute{{From: from, To: to}}}
}

// A port that is not served is no endpoint, and one without interception takes mutual TLS where its
// proxy listens.
func TestEndpointsOfPortStates(t *testing.T) {
	t.Parallel()
	web := gentest.Service("web", 1, "", "http/80")
	for state, want := range map[string]struct{ endpoint, mutual bool }{
		"": {true, false}, "80=closed": {false, false}, "80=loopback": {false, false}, "80=listener": {true, true},
		"81=closed": {true, false},
	} {
		ep := registry.Endpoint{Address: "10.0.0.2", TLSMode: "istio", States: registry.PortStates(state),
			Labels: map[string]string{registry.InterceptionLabel: registry.InterceptionNone}}
		s := Assignment{Service: web, Port: 80, Mutual: destination.MutualAuto,
			Endpoints: &registry.EndpointList{Items: []registry.Endpoint{ep}}}
		hosts := s.Hosts(reachable)
		if got := len(hosts) == 1; got != want.endpoint || got && hosts[0].mutual != want.mutual {
			t.Errorf("%q: got %+v, want %+v", state, hosts, want)
		}
	}
}

// Envoy has no priority beyond 128.
func TestPriorities(t *testing.T) {
	t.Parallel()
	hosts := make([]Host, 200)
	for i := range hosts {
		hosts[i] = Host{Endpoint: &registry.Endpoint{Address: fmt.Sprintf("10.0.0.%d", i)}, port: 80, priority: i}
	}
	hosts = inOrder(hosts)
	a := &endpointv3.ClusterLoadAssignment{}
	if err := proto.Unmarshal(Assignment{}.append(nil, "c", hosts), a); err != nil {
		t.Fatal(err)
	}
	if err := a.Validate(); err != nil || hosts[128].priority != 128 || hosts[199].priority != 128 {
		t.Errorf("got %v, the last has priority %d, want 128", err, hosts[199].priority)
	}
}
