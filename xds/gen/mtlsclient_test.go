package gen

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	networking "istio.io/api/networking/v1alpha3"
	security "istio.io/api/security/v1beta1"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/goldentest"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// Of mutual TLS, clusters depend on who endpoints may be, not on endpoints; and only policies that
// forbid it matter to clients, for endpoints alone.
func TestMutualLayersStay(t *testing.T) {
	t.Parallel()
	in := addressed(bigMesh(20))
	named := func(in push.Inputs, account string, health registry.Health) push.Inputs {
		k := registry.Key{Host: "svc-00003.shop.svc.cluster.local", Namespace: "shop"}
		l := &registry.EndpointList{Items: slices.Clone(in.Endpoints.At(k).Items)}
		for i := range l.Items {
			l.Items[i].TLSMode, l.Items[i].ServiceAccount, l.Items[i].Health = "istio", account, health
		}
		in.Endpoints = in.Endpoints.With(k, l)
		return in
	}
	policy := func(in push.Inputs, mode security.PeerAuthentication_MutualTLS_Mode) push.Inputs {
		o := &config.Object{Key: config.Key{Kind: config.PeerAuthentication, Namespace: "shop", Name: "p"},
			Spec: &security.PeerAuthentication{
				Mtls: &security.PeerAuthentication_MutualTLS{Mode: mode},
			}}
		in.Objects = in.Objects.With(o.Key, o)
		return in
	}
	in = named(in, "web", registry.Healthy)
	node := goldentest.Proxy{Addresses: []string{"10.9.9.9"}, Namespace: "shop", Identity: true}.Node(t)
	s := &scopes{node: node}
	before, g := s.next(in), New()
	for name, c := range map[string]struct {
		in      push.Inputs
		changed []string
	}{
		"health":      {named(in, "web", registry.Unhealthy), []string{resource.EndpointType}},
		"identity":    {named(in, "db", registry.Healthy), []string{resource.ClusterType}},
		"strict":      {policy(in, security.PeerAuthentication_MutualTLS_STRICT), []string{resource.ListenerType}},
		"permissive":  {policy(in, security.PeerAuthentication_MutualTLS_PERMISSIVE), nil},
		"not allowed": {policy(in, security.PeerAuthentication_MutualTLS_DISABLE), []string{resource.ListenerType, resource.EndpointType}},
	} {
		now := (&scopes{context: s.context, node: node}).next(c.in)
		for _, typeURL := range []string{resource.ClusterType, resource.EndpointType, resource.ListenerType, resource.RouteType, resource.SecretType,
			resource.NameTableType} {
			same := slices.Equal(versions(g.Set(typeURL, before)), versions(g.Set(typeURL, now)))
			if same == slices.Contains(c.changed, typeURL) {
				t.Errorf("%s: %s: the same: %v", name, shortType(typeURL), same)
			}
			if name == "health" && typeURL == resource.ClusterType && g.Set(typeURL, before) != g.Set(typeURL, now) {
				t.Error("the health of an endpoint makes other clusters")
			}
		}
	}
}

// A client without certificate sends nothing where mutual TLS has to be spoken, and everything else
// as before.
func TestMutualNeedsIdentity(t *testing.T) {
	t.Parallel()
	in := bigMesh(2)
	o := &config.Object{Key: config.Key{Kind: config.DestinationRule, Namespace: "shop", Name: "r"}, Hash: 7,
		Spec: &networking.DestinationRule{
			Host: "svc-00001.shop.svc.cluster.local", TrafficPolicy: &networking.TrafficPolicy{Tls: &networking.ClientTLSSettings{Mode: networking.ClientTLSSettings_ISTIO_MUTUAL}},
		}}
	in.Objects = in.Objects.With(o.Key, o)
	sc := (&scopes{node: goldentest.Proxy{Addresses: []string{"10.9.9.9"}, Namespace: "shop"}.Node(t)}).next(in)
	g := New()
	set := g.Set(resource.ClusterType, sc)
	for name, c := range decoded[*clusterv3.Cluster](t, set) {
		if outbound := strings.HasPrefix(name, "outbound"); c.TransportSocket != nil || outbound &&
			len(c.TransportSocketMatches) > 0 {
			t.Errorf("%s speaks TLS", name)
		}
		want := clusterv3.Cluster_EDS
		if strings.Contains(name, "svc-00001") {
			want = clusterv3.Cluster_STATIC // without endpoints
		}
		if strings.HasPrefix(name, "outbound") && c.GetType() != want {
			t.Errorf("%s is %v, want %v", name, c.GetType(), want)
		}
	}
	var got []string
	for _, p := range resource.Problems(set) {
		got = append(got, fmt.Sprint(p.Severity, " ", p.Object))
	}
	if len(got) != 2 || got[0] != "warning DestinationRule shop/r" {
		t.Errorf("got %v, want a warning for each port", got)
	}
	encode(set)
}
