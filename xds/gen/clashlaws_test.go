package gen

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/analyze"
	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/goldentest"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/xds/gen/layout"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// clashing is a mesh whose objects may conflict.
type clashing struct {
	objects  []*config.Object
	services []*registry.Service
}

func (c *clashing) add(r *rand.Rand, kind config.Kind, namespace, name string, o *config.Object) {
	o.Key = config.Key{Kind: kind, Namespace: namespace, Name: name}
	o.Created, o.Hash = time.Unix(int64(r.IntN(3)), 0), r.Uint64()
	c.objects = append(c.objects, o)
}

// findings are those of the analysis about conflicts, and the context that was analyzed.
func (c clashing) findings(t *testing.T) ([]analyze.Finding, *push.Context) {
	t.Helper()
	in := push.Inputs{Mesh: &push.Mesh{Config: config.DefaultMesh(), Domain: "mesh"}}
	for _, o := range c.objects {
		in.Objects = in.Objects.With(o.Key, o)
	}
	for _, s := range c.services {
		in.Services = in.Services.With(s.Key, s)
	}
	made := push.Build(nil, in)
	conflicts := []analyze.Code{analyze.ConflictingMeshHosts, analyze.ConflictingRoutes, analyze.ConflictingRules,
		analyze.ConflictingGateways, analyze.ConflictingAddresses}
	found := analyze.Run(t.Context(), made)
	return slices.DeleteFunc(found, func(f analyze.Finding) bool { return !slices.Contains(conflicts, f.Code) }), made
}

// sent is everything of one type that proxies of a mesh are sent, without routes that nothing
// reaches, since one before them has the same conditions.
func sent(t *testing.T, in push.Inputs, nodes []push.Node, typeURL string) []string {
	c, g := push.Build(nil, in), New()
	var out []string
	for i, n := range nodes {
		for r := range g.Set(typeURL, c.Scope(c.Classify(n))).All() {
			text := r.Version()
			if typeURL == resource.RouteType {
				text = reached(t, r.Body())
			}
			out = append(out, fmt.Sprint(i, " ", r.Name, " ", text))
		}
	}
	return out
}

// reached is a route configuration without the routes that nothing reaches.
func reached(t *testing.T, body []byte) string {
	var rc routev3.RouteConfiguration
	if err := proto.Unmarshal(body, &rc); err != nil {
		t.Fatal(err)
	}
	for _, h := range rc.VirtualHosts {
		var kept []*routev3.Route
		for _, r := range h.Routes {
			if !slices.ContainsFunc(kept, func(k *routev3.Route) bool { return proto.Equal(k.Match, r.Match) }) {
				kept = append(kept, r)
			}
		}
		h.Routes = kept
	}
	out, err := proto.MarshalOptions{Deterministic: true}.Marshal(&rc)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// nodesOf are proxies in all of namespaces.
func nodesOf(t *testing.T, p goldentest.Proxy, namespaces ...string) []push.Node {
	var out []push.Node
	for _, ns := range namespaces {
		p.Namespace, p.Addresses = ns, []string{"10.9.9.9", "fd00::9"}
		out = append(out, p.Node(t))
	}
	return out
}

func oneOf[T any](r *rand.Rand, list ...T) T { return list[r.IntN(len(list))] }

// Servers of Gateways are reported exactly where the layout leaves them out.
func TestGatewayClashesAreTheLayouts(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 5))
	router := nodesOf(t, goldentest.Proxy{Type: "router", Labels: map[string]string{"app": "gw"}}, "a")[0]
	total := 0
	for range 300 {
		var mesh clashing
		for i := range 1 + r.IntN(4) {
			spec := &networking.Gateway{Selector: map[string]string{"app": "gw"}}
			for n := range 1 + r.IntN(3) {
				s := &networking.Server{
					Port: &networking.Port{Number: oneOf[uint32](r, 80, 81), Name: fmt.Sprint("p", n),
						Protocol: oneOf(r, "HTTP", "HTTPS", "TLS", "TCP", "GRPC", "MONGO")},
					Bind: oneOf(r, "", "", "0.0.0.0", "::", "10.0.0.1", "::ffff:10.0.0.1", "unix:///s"),
				}
				for range 1 + r.IntN(2) {
					s.Hosts = append(s.Hosts, oneOf(r, "a.com", "x/a.com", "b.com", "./b.com", "*.com", "*"))
				}
				if p := s.Port.Protocol; p == "HTTPS" || p == "TLS" {
					s.Tls = &networking.ServerTLSSettings{Mode: oneOf(r, networking.ServerTLSSettings_SIMPLE,
						networking.ServerTLSSettings_PASSTHROUGH)}
				}
				spec.Servers = append(spec.Servers, s)
			}
			mesh.add(r, config.Gateway, oneOf(r, "a", "b"), fmt.Sprint("g", i), &config.Object{Spec: spec})
		}
		problems, c := mesh.findings(t)
		got := []string{}
		for _, p := range problems {
			got = append(got, p.Object+" "+p.Field)
		}
		sc := c.Scope(c.Classify(router))
		in := layout.New().Gateway(sc)
		want := map[string]bool{}
		var before *config.Object
		index := 0
		names := make([]string, in.Servers.Len())
		for i, s := range in.Servers.Items() {
			if s.Gateway != before {
				before, index = s.Gateway, 0
			}
			names[i] = fmt.Sprintf("%s spec.servers[%d]", s.Gateway.Key, index)
			want[names[i]] = true
			index++
		}
		for _, p := range in.Ports {
			for _, use := range p.Servers {
				delete(want, names[use.Index])
			}
		}
		slices.Sort(got)
		if d := cmp.Diff(slices.Sorted(maps.Keys(want)), got, cmpEmpty); d != "" {
			t.Fatalf("%v\n(-left out +reported):\n%s", describeObjects(mesh.objects), d)
		}
		total += len(got)
	}
	if total < 100 {
		t.Errorf("only %d clashes in all", total)
	}
}

// cmpEmpty takes an absent list and an empty one for equal.
var cmpEmpty = cmp.Transformer("empty", func(l []string) []string { return append([]string{}, l...) })

// Where a part of a DestinationRule is reported, it makes no difference what it says.
func TestRuleClashesAreTheClusters(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(2, 5))
	nodes := nodesOf(t, goldentest.Proxy{}, "a", "b", "c")
	total := 0
	for range 150 {
		mesh := clashing{services: []*registry.Service{{Key: registry.Key{Host: "web.com", Namespace: "a"},
			Ports: []registry.Port{{Number: 80, Name: "http", Protocol: registry.HTTP}}}}}
		for i := range 1 + r.IntN(4) {
			spec := &networking.DestinationRule{Host: "web.com",
				ExportTo: oneOf(r, nil, []string{"."}, []string{"b"}, []string{"a", "b"}, []string{"*"})}
			if r.IntN(2) == 0 {
				spec.TrafficPolicy = withConnections(int32(1 + r.IntN(9)))
			}
			for _, n := range []string{"v1", "v2"} {
				if r.IntN(2) == 0 {
					spec.Subsets = append(spec.Subsets, &networking.Subset{Name: n,
						TrafficPolicy: withConnections(int32(1 + r.IntN(9)))})
				}
			}
			mesh.add(r, config.DestinationRule, "a", fmt.Sprint("r", i), &config.Object{Spec: spec})
		}
		problems, c := mesh.findings(t)
		reported := map[string]bool{}
		for _, p := range problems {
			reported[p.Object+" "+p.Field] = true
		}
		total += len(reported)
		before := sent(t, c.Inputs(), nodes, resource.ClusterType)
		for _, o := range mesh.objects {
			check := func(field string, change func(*networking.DestinationRule)) {
				same := slices.Equal(before, sent(t, changed(c.Inputs(), o, change), nodes, resource.ClusterType))
				if name := o.Key.String() + " " + field; !same && reported[name] {
					t.Fatalf("%v\n%s: reported %v, without effect %v", describeObjects(mesh.objects), name,
						reported[name], same)
				}
			}
			if o.Spec.(*networking.DestinationRule).TrafficPolicy != nil {
				check("spec.trafficPolicy",
					func(s *networking.DestinationRule) { s.TrafficPolicy = withConnections(99) })
			}
			for i := range o.Spec.(*networking.DestinationRule).Subsets {
				check(fmt.Sprintf("spec.subsets[%d]", i),
					func(s *networking.DestinationRule) { s.Subsets[i].TrafficPolicy = withConnections(99) })
			}
		}
	}
	if total < 50 {
		t.Errorf("only %d clashes in all", total)
	}
}

func withConnections(connections int32) *networking.TrafficPolicy {
	return &networking.TrafficPolicy{ConnectionPool: &networking.ConnectionPoolSettings{Tcp: &networking.ConnectionPoolSettings_TCPSettings{MaxConnections: connections}}}
}

// Where a service is reported, no listener leads to it.
func TestServiceClashesAreTheListeners(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 5))
	nodes := nodesOf(t, goldentest.Proxy{}, "a", "b", "c")
	total := 0
	for range 200 {
		var mesh clashing
		for i, created := range r.Perm(2 + r.IntN(3)) {
			s := &registry.Service{
				Key: registry.Key{Host: fmt.Sprintf("s%d.com", i),
					Namespace: oneOf(r, "a", "b")}, Created: time.Unix(int64(created), 0),
				ExportTo: oneOf(r, nil, nil, []string{"."}, []string{"a", "b"}), Declared: true,
				Object:     fmt.Sprint("ServiceEntry a/s", i),
				Resolution: registry.Passthrough, // without addresses it wants none
			}
			protocols := []registry.Protocol{registry.TCP, registry.Redis, registry.Unknown, registry.TLS,
				registry.HTTPS}
			if a := oneOf(r, "10.0.0.1/32", "10.0.0.1/32", "10.0.0.0/8", ""); a != "" {
				s.Addresses = []netip.Prefix{netip.MustParsePrefix(a)}
				if s.Addresses[0].IsSingleIP() {
					protocols = append(protocols, registry.MySQL, registry.Mongo)
				}
			}
			s.Ports = []registry.Port{{Number: 9, Name: "p", Protocol: oneOf(r, protocols...)}}
			mesh.services = append(mesh.services, s)
			key := config.ParseKey(s.Object)
			mesh.objects = append(mesh.objects, &config.Object{Key: key,
				Spec: &networking.ServiceEntry{Hosts: []string{s.Host}}})
		}
		problems, c := mesh.findings(t)
		reported, partly := map[string]bool{}, map[string]bool{}
		for _, p := range problems {
			if strings.Contains(p.Text, "non-HTTP") {
				partly[p.Object] = true
			} else {
				reported[p.Object] = true
			}
		}
		total += len(reported)
		before := sent(t, c.Inputs(), nodes, resource.ListenerType)
		for _, s := range mesh.services {
			renamed := *s
			renamed.Host += ".other"
			in := c.Inputs()
			in.Services = in.Services.Without(s.Key).With(renamed.Key, &renamed)
			if same := slices.Equal(before, sent(t, in, nodes, resource.ListenerType)); !same && reported[s.Object] &&
				!partly[s.Object] {
				t.Fatalf("%s: reported %v, without effect %v, among\n%s", s.Object, reported[s.Object], same,
					describeServices(mesh.services))
			}
		}
	}
	if total < 50 {
		t.Errorf("only %d clashes in all", total)
	}
}

func describeServices(services []*registry.Service) string {
	var b strings.Builder
	for _, s := range services {
		fmt.Fprintf(&b, "%v %v created %d protocol %d to %v\n", s.Key, s.Addresses, s.Created.Unix(),
			s.Ports[0].Protocol, s.ExportTo)
	}
	return b.String()
}
