package gen

import (
	"fmt"
	"strings"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/goldentest"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/xds/gen/envoy"
	"github.com/ashore-mesh/ashore/xds/gen/gentest"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// refusedMesh has services a and b, each with an HTTP and a TCP port, to which objects are added
// that did not pass validation.
func refusedMesh(objects ...*config.Object) push.Inputs {
	in := push.Inputs{Mesh: &push.Mesh{Config: config.DefaultMesh(), Domain: "cluster.local"}}
	for _, o := range objects {
		in.Objects = in.Objects.With(o.Key, o)
	}
	for i, host := range []string{"a.example.com", "b.example.com"} {
		s := gentest.Service(host, 1, fmt.Sprintf("10.5.0.%d", i+1), "http/80", "tcp/3306")
		in.Services = in.Services.With(s.Key, s)
		in.Endpoints = in.Endpoints.With(s.Key,
			&registry.EndpointList{Items: []registry.Endpoint{{Address: "10.0.0.1"}}})
	}
	return in
}

func refusedScope(t *testing.T, in push.Inputs) *push.Scope {
	t.Helper()
	return (&scopes{node: goldentest.Proxy{Addresses: []string{"10.0.0.9"}, Namespace: "shop",
		Interception: "REDIRECT"}.Node(t)}).next(in)
}

// wantRefused fails the test unless there is one problem, whose object and text begin so.
func wantRefused(t *testing.T, set resource.Set, object, text string) {
	t.Helper()
	got := resource.Problems(set)
	if len(got) != 1 || got[0].Object != object || !strings.HasPrefix(got[0].Text, text) {
		t.Errorf("problems: got %v, want one of %q that begins with %q", got, object, text)
	}
}

// A VirtualService that Envoy would refuse takes down its own hosts alone, which answer with 503.
func TestRefusedRoutes(t *testing.T) {
	t.Parallel()
	destination := &networking.HTTPRouteDestination{Destination: &networking.Destination{Host: "a.example.com"}}
	for name, route := range map[string]*networking.HTTPRoute{
		"header": {Headers: &networking.Headers{Request: &networking.Headers_HeaderOperations{Set: map[string]string{"x": strings.Repeat("x", 16385)}}}},
		"fault": {Fault: &networking.HTTPFaultInjection{Abort: &networking.HTTPFaultInjection_Abort{
			Percentage: &networking.Percent{Value: 100}, ErrorType: &networking.HTTPFaultInjection_Abort_HttpStatus{HttpStatus: 700},
		}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			route.Route = []*networking.HTTPRouteDestination{destination}
			vs := testVS("bad", &networking.VirtualService{Hosts: []string{"a.example.com"},
				Http: []*networking.HTTPRoute{route}}).Object
			vs.Key = config.Key{Kind: config.VirtualService, Namespace: "shop", Name: "bad"}
			g := New()
			sc := refusedScope(t, refusedMesh(vs))
			set := g.Set(resource.RouteType, sc)
			c := decoded[*routev3.RouteConfiguration](t, set)["80"]
			if err := gentest.ValidateAll(c); err != nil {
				t.Fatal(err)
			}
			got := map[string]string{}
			for _, h := range c.VirtualHosts {
				for _, r := range h.Routes {
					got[h.Domains[0]] += fmt.Sprint(r.GetDirectResponse().GetStatus(), r.GetRoute().GetCluster())
				}
			}
			if got["a.example.com"] != "503" || got["b.example.com"] != "0outbound|80||b.example.com" {
				t.Errorf("got %v, want 503 for a alone", got)
			}
			wantRefused(t, set, "VirtualService shop/bad", "the virtual host a.example.com:80 answers with 503: Envoy would refuse it: ")
		})
	}
}

// A cluster that Envoy would refuse is left out; the others stay.
func TestRefusedCluster(t *testing.T) {
	t.Parallel()
	rule := &config.Object{Key: config.Key{Kind: config.DestinationRule, Namespace: "shop", Name: "bad"},
		Spec: &networking.DestinationRule{
			Host: "a.example.com", TrafficPolicy: &networking.TrafficPolicy{OutlierDetection: &networking.OutlierDetection{MaxEjectionPercent: 200}},
		}}
	in := refusedMesh(rule)
	in.Endpoints = in.Endpoints.With(registry.Key{Host: "b.example.com", Namespace: "shop"},
		&registry.EndpointList{Items: []registry.Endpoint{
			{Address: "fe80::1%eth0"}, {Address: "10.0.0.2"}, {Address: "10.0.0.3", Ports: map[string]uint32{"http": 70000}},
		}})
	g := New()
	sc := refusedScope(t, in)
	set := g.Set(resource.ClusterType, sc)
	clusters := decoded[*clusterv3.Cluster](t, set)
	if clusters["outbound|80||a.example.com"] != nil || clusters["outbound|80||b.example.com"] == nil {
		t.Errorf("got %d clusters, want those of b and not those of a", len(clusters))
	}
	if got := resource.Problems(set); len(got) != 2 || got[0].Object != "DestinationRule shop/bad" ||
		!strings.Contains(got[0].Text, "the cluster outbound|3306||a.example.com is left out") {
		t.Errorf("problems: got %v, want one for each port of a", got)
	}
	assignment := decoded[*endpointv3.ClusterLoadAssignment](t, g.Set(resource.EndpointType, sc))["outbound|80||b.example.com"]
	if err := gentest.ValidateAll(assignment); err != nil || len(assignment.Endpoints) != 1 ||
		len(assignment.Endpoints[0].LbEndpoints) != 1 {
		t.Errorf("got %v, %v, want the one endpoint that can be reached", assignment, err)
	}
}

// An inbound cluster that Envoy would refuse is left out, as is one that is for no service. The others
// stay.
func TestRefusedOwnClusters(t *testing.T) {
	t.Parallel()
	pool := &networking.ConnectionPoolSettings{Tcp: &networking.ConnectionPoolSettings_TCPSettings{ConnectTimeout: durationpb.New(-time.Second)}}
	rule := &config.Object{Key: config.Key{Kind: config.DestinationRule, Namespace: "shop", Name: "bad"},
		Spec: &networking.DestinationRule{
			Host: "a.example.com", TrafficPolicy: &networking.TrafficPolicy{PortLevelSettings: []*networking.TrafficPolicy_PortTrafficPolicy{
				{Port: &networking.PortSelector{Number: 80}, ConnectionPool: pool},
			}},
		}}
	ingress := func(port uint32, pool *networking.ConnectionPoolSettings) *networking.IstioIngressListener {
		return &networking.IstioIngressListener{Port: &networking.SidecarPort{Number: port, Name: "x",
			Protocol: "HTTP"}, ConnectionPool: pool, DefaultEndpoint: "127.0.0.1:8000"}
	}
	sidecar := &config.Object{Key: config.Key{Kind: config.Sidecar, Namespace: "shop", Name: "bad"},
		Spec: &networking.Sidecar{
			Ingress: []*networking.IstioIngressListener{ingress(80, pool), ingress(3306, nil)},
		}}
	badMesh := refusedMesh()
	badMesh.Mesh.Config = config.DefaultMesh()
	badMesh.Mesh.Config.ConnectTimeout = durationpb.New(-time.Second)
	for name, tt := range map[string]struct {
		in              push.Inputs
		leftOut, others []string
		object          string
	}{
		"rule":    {refusedMesh(rule), []string{"inbound|80||"}, []string{"inbound|3306||", envoy.BlackHole, envoy.Passthrough, envoy.InboundPassthrough}, "DestinationRule shop/bad"},
		"sidecar": {refusedMesh(sidecar), []string{"inbound|80||"}, []string{"inbound|3306||", envoy.BlackHole, envoy.Passthrough, envoy.InboundPassthrough}, "Sidecar shop/bad"},
		"mesh":    {badMesh, []string{"inbound|80||", "inbound|3306||", envoy.BlackHole, envoy.Passthrough, envoy.InboundPassthrough}, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, host := range []string{"a.example.com", "b.example.com"} { // the proxy serves them
				tt.in.Endpoints = tt.in.Endpoints.With(registry.Key{Host: host, Namespace: "shop"},
					&registry.EndpointList{Items: []registry.Endpoint{{Address: "10.0.0.9", Namespace: "shop"}}})
			}
			g := New()
			sc := refusedScope(t, tt.in)
			set := g.Set(resource.ClusterType, sc)
			clusters := decoded[*clusterv3.Cluster](t, set)
			told := map[string]bool{}
			for _, p := range resource.Problems(set) {
				name, _, leftOut := strings.Cut(strings.TrimPrefix(p.Text, "the cluster "),
					" is left out, so that connections to it fail: Envoy would refuse it: ")
				told[name] = leftOut && p.Object == tt.object
			}
			for _, name := range tt.leftOut {
				if c := clusters[name]; c != nil || !told[name] {
					t.Errorf("%s: got %v, reported %v; want none, and a problem", name, c, told[name])
				}
			}
			for _, name := range tt.others {
				c := clusters[name]
				if c == nil || c.ConnectTimeout == nil || told[name] {
					t.Errorf("%s: got %v, told of %v; want what it was", name, c, told[name])
				}
			}
			for name, c := range clusters {
				if err := gentest.ValidateAll(c); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
		})
	}
}

// A filter chain that Envoy would refuse closes its connections; all others stay.
func TestRefusedListener(t *testing.T) {
	t.Parallel()
	rule := &config.Object{Key: config.Key{Kind: config.DestinationRule, Namespace: "shop", Name: "bad"},
		Spec: &networking.DestinationRule{
			Host: "a.example.com", TrafficPolicy: &networking.TrafficPolicy{ConnectionPool: &networking.ConnectionPoolSettings{
				Tcp: &networking.ConnectionPoolSettings_TCPSettings{MaxConnectionDuration: durationpb.New(time.Nanosecond)},
			}},
		}}
	g := New()
	sc := refusedScope(t, refusedMesh(rule))
	set := g.Set(resource.ListenerType, sc)
	listeners := map[string]*listenerv3.Listener{}
	for _, l := range decodeListeners(t, set) {
		if err := gentest.ValidateAll(l); err != nil {
			t.Errorf("%s: %v", l.Name, err)
		}
		listeners[l.Name] = l
	}
	for name, cluster := range map[string]string{"10.5.0.1_3306": envoy.BlackHole,
		"10.5.0.2_3306": "outbound|3306||b.example.com"} {
		l := listeners[name]
		if l == nil || len(l.FilterChains) != 1 ||
			!strings.Contains(string(l.FilterChains[0].Filters[0].GetTypedConfig().GetValue()), cluster) {
			t.Errorf("%s: got %v, want one chain to %s", name, l, cluster)
		}
	}
	wantRefused(t, set, "",
		"a filter chain of the listener 10.5.0.1_3306 closes its connections: Envoy would refuse it: ")
}

// What Envoy accepts is no problem.
func TestNothingRefused(t *testing.T) {
	t.Parallel()
	g := New()
	sc := refusedScope(t, refusedMesh())
	for _, typeURL := range []string{resource.ClusterType, resource.ListenerType, resource.RouteType} {
		set := g.Set(typeURL, sc)
		if got := resource.Problems(set); len(got) != 0 || set.Len() == 0 {
			t.Errorf("got %v, want nothing", got)
		}
	}
}
