package gen

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/goldentest"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// changed is a mesh in which an object says something else.
func changed[S proto.Message](in push.Inputs, o *config.Object, change func(S)) push.Inputs {
	other := *o
	other.Spec = proto.Clone(o.Spec)
	other.Hash++
	change(other.Spec.(S))
	in.Objects = in.Objects.With(o.Key, &other)
	return in
}

// routesForOneHost makes a VirtualService for one host.
func routesForOneHost(r *rand.Rand) *networking.VirtualService {
	spec := &networking.VirtualService{
		Hosts: []string{"web.com"}, Gateways: oneOf(r, nil, []string{"a/gw"}, []string{"mesh", "a/gw"}),
		ExportTo: oneOf(r, nil, nil, []string{"."}, []string{"a", "b"}),
	}
	for range r.IntN(3) {
		h := &networking.HTTPRoute{Route: []*networking.HTTPRouteDestination{{Destination: &networking.Destination{Host: "other.com"}}}}
		for range r.IntN(3) {
			h.Match = append(h.Match, &networking.HTTPMatchRequest{
				Port: oneOf[uint32](r, 0, 0, 80, 81), Gateways: oneOf(r, nil, nil, []string{"mesh"}, []string{"a/gw"}),
				SourceLabels: oneOf(r, nil, nil, map[string]string{"app": "x"}), SourceNamespace: oneOf(r, "", "", "a"),
				Uri: oneOf(r, nil, prefix("/"), prefix("/x"),
					&networking.StringMatch{MatchType: &networking.StringMatch_Regex{Regex: ".*"}}),
			})
		}
		spec.Http = append(spec.Http, h)
	}
	to := []*networking.RouteDestination{{Destination: &networking.Destination{Host: "other.com"}}}
	for range r.IntN(2) {
		tcp := &networking.TCPRoute{Route: to}
		for range r.IntN(3) {
			tcp.Match = append(tcp.Match, &networking.L4MatchAttributes{
				Port: oneOf[uint32](r, 0, 0, 9), SourceLabels: oneOf(r, nil,
					map[string]string{"app": "x"}), DestinationSubnets: oneOf(r, nil, []string{"10.0.0.0/8"}),
			})
		}
		spec.Tcp = append(spec.Tcp, tcp)
	}
	for range r.IntN(2) {
		spec.Tls = append(spec.Tls, &networking.TLSRoute{Route: to, Match: []*networking.TLSMatchAttributes{{
			Port: oneOf[uint32](r, 0, 443), SniHosts: oneOf(r, []string{"web.com"},
				[]string{"web.com", "v.web.com"}), SourceLabels: oneOf(r, nil, map[string]string{"app": "x"}),
		}}})
	}
	return spec
}

func prefix(p string) *networking.StringMatch {
	return &networking.StringMatch{MatchType: &networking.StringMatch_Prefix{Prefix: p}}
}

// reroute sends a route elsewhere, "spec.http[1]", or all routes of a kind, "spec.http".
func reroute(s *networking.VirtualService, field string) {
	const elsewhere = "elsewhere.com"
	for i, h := range s.Http {
		if strings.HasPrefix(fmt.Sprintf("spec.http[%d]", i), field) {
			h.Route[0].Destination.Host = elsewhere
		}
	}
	for i, h := range s.Tcp {
		if strings.HasPrefix(fmt.Sprintf("spec.tcp[%d]", i), field) {
			h.Route[0].Destination.Host = elsewhere
		}
	}
}

// Where a route of a VirtualService is reported, it makes no difference where it leads.
func TestRouteClashesAreTheRoutes(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(4, 5))
	plain, labelled := goldentest.Proxy{}, goldentest.Proxy{Labels: map[string]string{"app": "x"}}
	sidecars := append(nodesOf(t, plain, "a", "b", "c"), nodesOf(t, labelled, "a", "b", "c")...)
	plain.Type, labelled.Type = "router", "router"
	routers := append(nodesOf(t, plain, "a", "b", "c"), nodesOf(t, labelled, "a", "b", "c")...)
	total := 0
	for range 500 {
		mesh := clashing{services: []*registry.Service{{Key: registry.Key{Host: "web.com", Namespace: "a"},
			Ports: []registry.Port{
				{Number: 80, Name: "http", Protocol: registry.HTTP}, {Number: 81, Name: "grpc", Protocol: registry.GRPC},
				{Number: 82, Name: "rest", Protocol: registry.HTTP}, // which no match names, so that those by port never take all
				{Number: 9, Name: "tcp", Protocol: registry.TCP}, {Number: 443, Name: "tls", Protocol: registry.TLS},
			}}}}
		mesh.add(r, config.Gateway, "a", "gw", &config.Object{Spec: &networking.Gateway{Servers: []*networking.Server{
			{Port: &networking.Port{Number: 80, Name: "http", Protocol: "HTTP"}, Hosts: []string{"*"}},
			{Port: &networking.Port{Number: 9, Name: "tcp", Protocol: "TCP"}, Hosts: []string{"*"}},
			{Port: &networking.Port{Number: 443, Name: "tls", Protocol: "TLS"}, Hosts: []string{"*"}, Tls: &networking.ServerTLSSettings{}},
		}}})
		for i := range 2 + r.IntN(2) {
			mesh.add(r, config.VirtualService, oneOf(r, "a", "a", "b"), fmt.Sprint("v", i),
				&config.Object{Spec: routesForOneHost(r)})
		}
		problems, c := mesh.findings(t)
		for _, p := range problems {
			total++
			key, nodes := config.Key{}, routers
			if strings.Contains(p.Text, " on sidecars") {
				nodes = sidecars
			}
			for _, o := range mesh.objects {
				if o.Key.String() == p.Object {
					key = o.Key
				}
			}
			in := changed(c.Inputs(), c.Inputs().Objects.At(key),
				func(s *networking.VirtualService) { reroute(s, p.Field) })
			for _, typeURL := range []string{resource.ListenerType, resource.RouteType} {
				if !slices.Equal(sent(t, c.Inputs(), nodes, typeURL), sent(t, in, nodes, typeURL)) {
					t.Fatalf("%v\n%v:\n%s makes a difference", describeObjects(mesh.objects), p, p.Field)
				}
			}
		}
	}
	if total < 50 {
		t.Errorf("only %d conflicts in all", total)
	}
}

func describeObjects(objects []*config.Object) string {
	var b strings.Builder
	for _, o := range objects {
		fmt.Fprintf(&b, "%v created %d: %v\n", o.Key, o.Created.Unix(), o.Spec)
	}
	return b.String()
}
