package gen

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/wrapperspb"
	networking "istio.io/api/networking/v1alpha3"
	security "istio.io/api/security/v1beta1"
	typev1beta1 "istio.io/api/type/v1beta1"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/goldentest"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/xds/gen/gentest"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// ownTypes are the types that this file's laws are about.
func ownTypes() []string {
	return []string{resource.ClusterType, resource.EndpointType, resource.SecretType, resource.ExtensionConfigType, resource.NameTableType}
}

// versions are the names and versions of a set, in order.
func versions(set resource.Set) []string {
	var out []string
	for r := range set.All() {
		out = append(out, r.Name+" "+r.Version())
	}
	return out
}

// editTokens makes one edit of what is asked of tokens: of a RequestAuthentication, or of the keys
// that were fetched.
func editTokens(in push.Inputs, which, how byte) push.Inputs {
	const url = "https://issuer.example/keys"
	if how%5 == 4 {
		in.Keys = &push.KeySets{ByURL: map[string]string{url: fmt.Sprintf(`{"keys":[%d]}`, which%3)}}
		return in
	}
	key := config.Key{Kind: config.RequestAuthentication, Namespace: []string{"shop", "istio-system", "other"}[which%3],
		Name: fmt.Sprint("p", which%4)}
	if how%7 == 6 {
		in.Objects = in.Objects.Without(key)
		return in
	}
	r := &security.JWTRule{Issuer: fmt.Sprint("https://issuer.example/", how%3), JwksUri: url,
		ForwardOriginalToken: how%2 == 0}
	if how%3 == 1 {
		r.FromHeaders = []*security.JWTHeader{{Name: []string{"x-token", "a b"}[how%2], Prefix: "jwt "}}
		r.OutputClaimToHeaders = []*security.ClaimToHeader{{Header: "x-user", Claim: "sub"}}
	}
	made := &security.RequestAuthentication{JwtRules: []*security.JWTRule{r,
		{Issuer: "https://other.example", Jwks: "{}"}}}
	if which%4 == 0 {
		made.Selector = &typev1beta1.WorkloadSelector{MatchLabels: map[string]string{"version": "v1"}}
	}
	in.Objects = in.Objects.With(key, &config.Object{Key: key, Spec: made})
	return in
}

// edit makes one edit of a mesh, chosen by three numbers.
func edit(in push.Inputs, what, which, how byte) push.Inputs {
	k := registry.Key{Host: fmt.Sprintf("svc-%d.example.com", which%6), Namespace: "shop"}
	switch what % 7 {
	case 6:
		return editTokens(in, which, how)
	case 5:
		if how%5 == 4 {
			in.Trust = &push.Trust{Identities: []string{fmt.Sprintf("spiffe://cluster.local/ns/shop/sa/w%d", which%2)}}
			return in
		}
		key := config.Key{Kind: config.AuthorizationPolicy,
			Namespace: []string{"shop", "istio-system", "other"}[which%3], Name: fmt.Sprint("p", which%4)}
		if how%7 == 6 {
			in.Objects = in.Objects.Without(key)
			return in
		}
		made := policyMaker{rand.New(rand.NewPCG(uint64(how), uint64(which))),
			how%2 == 0}.policies()[0].Spec.(*security.AuthorizationPolicy)
		if which%4 == 0 {
			made.Selector = &typev1beta1.WorkloadSelector{MatchLabels: map[string]string{"version": "v1"}}
		}
		in.Objects = in.Objects.With(key, &config.Object{Key: key, Spec: made})
	case 4:
		key := config.Key{Kind: config.PeerAuthentication, Namespace: []string{"shop", "istio-system"}[which%2],
			Name: fmt.Sprint("p", which%3)}
		if how%7 == 6 {
			in.Objects = in.Objects.Without(key)
			return in
		}
		p := &security.PeerAuthentication{Mtls: &security.PeerAuthentication_MutualTLS{Mode: security.PeerAuthentication_MutualTLS_Mode(how % 4)}}
		if which%4 == 0 {
			p.Selector = &typev1beta1.WorkloadSelector{MatchLabels: map[string]string{"version": "v1"}}
			p.PortLevelMtls = map[uint32]*security.PeerAuthentication_MutualTLS{uint32(how): {Mode: security.PeerAuthentication_MutualTLS_DISABLE}}
		}
		in.Objects = in.Objects.With(key, &config.Object{Key: key, Spec: p})
	case 0:
		if how%5 == 4 {
			in.Services, in.Endpoints = in.Services.Without(k), in.Endpoints.Without(k)
			return in
		}
		in.Services = in.Services.With(k, &registry.Service{
			Key: k, Resolution: registry.Resolution(how % 4),
			Ports: []registry.Port{{Number: 80, Name: "http", Protocol: registry.Protocol(how % 12),
				TargetPort: uint32(how)}, {Number: 81, Name: "x"}},
		})
	case 1, 2:
		l := &registry.EndpointList{}
		for i := range how % 6 {
			l.Items = append(l.Items, registry.Endpoint{
				Address: []string{"10.0.0.1", "10.0.0.2", "name.example.com", "unix:///a", "fd00::1",
					"10.0.0.1"}[(which+i)%6],
				Labels: map[string]string{"version": []string{"v1",
					"v2"}[i%2]}, Weight: uint32(i) << (which % 32), Namespace: "shop",
				Workload: []string{"", "w"}[which%2], Locality: registry.Locality{Region: []string{"", "east",
					"west"}[(i+how)%3]},
				Health: registry.Health(which / 6 % 3), TLSMode: []string{"",
					"istio"}[how/6%2], ServiceAccount: []string{"", "web", "db"}[(int(how)/12+int(i))%3],
			})
		}
		in.Endpoints = in.Endpoints.With(k, l)
	case 3:
		key := config.Key{Kind: config.DestinationRule, Namespace: "shop", Name: k.Host}
		if how%7 == 6 {
			in.Objects = in.Objects.Without(key)
			return in
		}
		p := &networking.TrafficPolicy{}
		if how%2 == 0 {
			p.OutlierDetection = &networking.OutlierDetection{Consecutive_5XxErrors: wrapperspb.UInt32(uint32(how))}
		}
		if how%3 == 0 {
			p.Tls = &networking.ClientTLSSettings{Mode: networking.ClientTLSSettings_MUTUAL, ClientCertificate: "/c",
				PrivateKey: "/k", InsecureSkipVerify: wrapperspb.Bool(how%4 == 0)}
		}
		if how%6 == 1 {
			p.Tls = &networking.ClientTLSSettings{Mode: networking.ClientTLSSettings_ISTIO_MUTUAL}
		}
		if how%5 == 0 {
			p.LoadBalancer = &networking.LoadBalancerSettings{LbPolicy: &networking.LoadBalancerSettings_Simple{Simple: networking.LoadBalancerSettings_PASSTHROUGH}}
		}
		in.Objects = in.Objects.With(key, &config.Object{Key: key, Spec: &networking.DestinationRule{
			Host: k.Host, TrafficPolicy: p, Subsets: []*networking.Subset{{Name: "v1",
				Labels: map[string]string{"version": "v1"}}},
		}})
	}
	return in
}

// Whatever a Generator remembers, it makes what a new one makes; every message keeps the rules of
// its fields; sets that were handed out do not change.
func FuzzGenerator(f *testing.F) {
	f.Add([]byte{0, 0, 0, 1, 0, 3, 3, 0, 0, 1, 0, 4, 0, 1, 1, 1, 1, 5, 0, 0, 4})
	f.Add([]byte{0, 2, 2, 1, 2, 5, 3, 2, 6, 1, 2, 2, 0, 3, 3, 2, 3, 3})
	r := rand.New(rand.NewPCG(1, 2))
	for range 10 {
		seed := make([]byte, 60)
		for i := range seed {
			seed[i] = byte(r.Uint32())
		}
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, edits []byte) {
		in := push.Inputs{Mesh: &push.Mesh{Config: config.DefaultMesh(), Domain: "cluster.local"}}
		g := New()
		nodes := []*scopes{
			{node: goldentest.Proxy{Addresses: []string{"10.0.0.1"}, Namespace: "shop", Locality: "east"}.Node(t)},
			{node: goldentest.Proxy{Addresses: []string{"fd00::1"}, Namespace: "shop", Locality: "west", Interception: "NONE"}.Node(t)},
			{node: goldentest.Proxy{Addresses: []string{"10.0.0.1"}, Namespace: "shop", Identity: true}.Node(t)},
		}
		type handed struct {
			set  resource.Set
			want []string
		}
		var before []handed
		for len(edits) >= 3 && len(before) < 200 {
			in = edit(in, edits[0], edits[1], edits[2])
			edits = edits[3:]
			for _, s := range nodes {
				sc := s.next(in)
				for _, typeURL := range ownTypes() {
					got := g.Set(typeURL, sc)
					want := New().Set(typeURL, sc)
					if !slices.Equal(versions(got), versions(want)) {
						t.Fatalf("%s: got %v\nwant, as a new generator makes it, %v", shortType(typeURL), versions(got),
							versions(want))
					}
					if again := g.Set(typeURL, sc); again != got {
						t.Fatalf("%s: asked twice, another set", shortType(typeURL))
					}
					before = append(before, handed{got, versions(got)})
				}
				checkMessages(t, g, sc)
			}
		}
		for _, h := range before {
			if !slices.Equal(versions(h.set), h.want) {
				t.Fatalf("a set that was handed out changed: %v\nwas %v", versions(h.set), h.want)
			}
		}
	})
}

// checkMessages checks every message, and that what clusters refer to is there.
func checkMessages(t *testing.T, g *Generator, sc *push.Scope) {
	t.Helper()
	assignments := g.Set(resource.EndpointType, sc)
	for _, typeURL := range []string{resource.ClusterType, resource.EndpointType, resource.SecretType} {
		for r := range g.Set(typeURL, sc).All() {
			m := messageOf(t, typeURL)
			gentest.SameAsLibrary(t, r, m)
			if err := gentest.ValidateAll(m); err != nil {
				t.Fatalf("%s: %v", r.Name, err)
			}
			for _, ref := range r.Refs {
				if ref.TypeURL == resource.EndpointType && assignments.Get(ref.Name) == nil {
					t.Fatalf("cluster %s has no load assignment", ref.Name)
				}
			}
		}
	}
}

// The order in which endpoints are declared does not matter.
func TestEndpointOrderIsFree(t *testing.T) {
	t.Parallel()
	in := bigMesh(1)
	k := registry.Key{Host: "svc-00000.shop.svc.cluster.local", Namespace: "shop"}
	want := versions(New().Set(resource.EndpointType, (&scopes{}).next(in)))
	items := slices.Clone(in.Endpoints.At(k).Items)
	slices.Reverse(items)
	in.Endpoints = in.Endpoints.With(k, &registry.EndpointList{Items: items})
	if got := versions(New().Set(resource.EndpointType, (&scopes{}).next(in))); !slices.Equal(got, want) {
		t.Errorf("the reverse order gives %v, want %v", got, want)
	}
}

// Each type keeps its layer when something changes that it does not depend on.
func TestLayersStay(t *testing.T) {
	t.Parallel()
	in := addressed(bigMesh(20))
	s := &scopes{node: goldentest.Proxy{Addresses: []string{"10.9.9.9"}, Namespace: "shop",
		Locality: "east"}.Node(t)}
	g := New()
	before := s.next(in)
	vs := &config.Object{Key: config.Key{Kind: config.VirtualService, Namespace: "shop", Name: "r"}, Hash: 1,
		Spec: &networking.VirtualService{
			Hosts: []string{"svc-00001.shop.svc.cluster.local"}, Http: []*networking.HTTPRoute{{DirectResponse: &networking.HTTPDirectResponse{Status: 200}}},
		}}
	withRoute := in
	withRoute.Objects = in.Objects.With(vs.Key, vs)
	elsewhere := &scopes{context: s.context, node: s.node}
	elsewhere.node.Locality = registry.Locality{Region: "west"}
	for name, c := range map[string]struct {
		sc   *push.Scope
		same []string
	}{
		"endpoint": {(&scopes{context: s.context, node: s.node}).next(withEndpoint(in, 3, 9)), []string{resource.ClusterType, resource.ListenerType, resource.RouteType, resource.SecretType, resource.ExtensionConfigType, resource.NameTableType}},
		"route":    {(&scopes{context: s.context, node: s.node}).next(withRoute), []string{resource.ClusterType, resource.EndpointType, resource.SecretType, resource.NameTableType}},
		"locality": {elsewhere.next(in), []string{resource.ClusterType, resource.EndpointType, resource.ListenerType, resource.RouteType, resource.SecretType, resource.ExtensionConfigType, resource.NameTableType}},
	} {
		for _, typeURL := range c.same {
			if g.Set(typeURL, before) != g.Set(typeURL, c.sc) {
				t.Errorf("%s: the set of %s is another one", name, shortType(typeURL))
			}
		}
	}
	if g.Set(resource.EndpointType, before) == g.Set(resource.EndpointType, s.next(withEndpoint(in, 3, 9))) {
		t.Error("a new endpoint leaves the load assignments as they were")
	}
}

// Where a client is matters to the order of endpoints, not to clusters that do not carry any.
func TestLocalityIsForEndpoints(t *testing.T) {
	t.Parallel()
	in := bigMesh(3)
	k := config.Key{Kind: config.DestinationRule, Namespace: "shop", Name: "svc-00000"}
	in.Objects = in.Objects.With(k, &config.Object{Key: k, Hash: 99, Spec: &networking.DestinationRule{
		Host: "svc-00000.shop.svc.cluster.local", TrafficPolicy: &networking.TrafficPolicy{OutlierDetection: &networking.OutlierDetection{}},
	}})
	east := &scopes{node: goldentest.Proxy{Addresses: []string{"10.9.9.9"}, Namespace: "shop",
		Locality: "east"}.Node(t)}
	one := east.next(in)
	west := &scopes{context: east.context, node: east.node}
	west.node.Locality = registry.Locality{Region: "west"}
	two := west.next(in)
	if one.Locality == two.Locality {
		t.Fatal("the scopes do not differ")
	}
	g := New()
	if g.Set(resource.ClusterType, one) != g.Set(resource.ClusterType, two) {
		t.Error("clients in two places have different clusters")
	}
	if g.Set(resource.EndpointType, one) == g.Set(resource.EndpointType, two) {
		t.Error("clients in two places have the same order of endpoints")
	}
}

// One new endpoint makes new assignments for the clusters of its service alone.
func TestOneEndpointOneService(t *testing.T) {
	t.Parallel()
	in := bigMesh(20)
	s, g := &scopes{}, New()
	before := g.Set(resource.EndpointType, s.next(in))
	after := g.Set(resource.EndpointType, s.next(withEndpoint(in, 5, 9)))
	changed := map[string]bool{}
	for r := range after.All() {
		if before.Get(r.Name) != r {
			changed[r.Name] = before.Get(r.Name).Version() != r.Version()
		}
	}
	// endpoint 9 is of version v2, so that the bytes of subset v1 stay
	want := map[string]bool{}
	for _, port := range []string{"80", "9000"} {
		for subset, differs := range map[string]bool{"": true, "v1": false, "v2": true} {
			want["outbound|"+port+"|"+subset+"|svc-00005.shop.svc.cluster.local"] = differs
		}
	}
	if fmt.Sprint(changed) != fmt.Sprint(want) {
		t.Errorf("changed %v, want %v", changed, want)
	}
}

// Every cluster that a listener or a route names exists, but for what configuration names and
// nobody declared.
func checkClusters(t *testing.T, g *Generator, sc *push.Scope) {
	t.Helper()
	clusters := g.Set(resource.ClusterType, sc)
	for _, typeURL := range []string{resource.ListenerType, resource.RouteType} {
		for r := range g.Set(typeURL, sc).All() {
			for _, ref := range r.Refs {
				if ref.TypeURL == resource.ClusterType && clusters.Get(ref.Name) == nil && !named(sc, ref.Name) {
					t.Errorf("%s %s leads to the cluster %s, which does not exist", shortType(typeURL), r.Name,
						ref.Name)
				}
			}
		}
	}
}

// named says whether a VirtualService or a Sidecar of the scope names the destination of a cluster.
func named(sc *push.Scope, cluster string) bool {
	is := func(d *networking.Destination) bool {
		parts := strings.Split(cluster, "|")
		port := d.GetPort().GetNumber()
		return len(parts) == 4 && d.GetHost() == parts[3] && d.GetSubset() == parts[2] &&
			(port == 0 || fmt.Sprint(port) == parts[1])
	}
	found := sc.Sidecar != nil && is(sc.Sidecar.Spec.GetOutboundTrafficPolicy().GetEgressProxy())
	see := func(spec *networking.VirtualService) {
		for _, r := range spec.Http {
			for _, d := range r.Route {
				found = found || is(d.Destination)
			}
			for _, m := range r.Mirrors {
				found = found || is(m.Destination)
			}
			found = found || r.Mirror != nil && is(r.Mirror)
		}
		for _, r := range spec.Tcp {
			for _, d := range r.Route {
				found = found || is(d.Destination)
			}
		}
		for _, r := range spec.Tls {
			for _, d := range r.Route {
				found = found || is(d.Destination)
			}
		}
	}
	for _, e := range sc.Egress.Items() {
		for _, vs := range e.Routes.Items() {
			see(vs.Spec)
		}
	}
	for _, s := range sc.Gateways.Items() {
		for _, vs := range s.Routes.Items() {
			see(vs.Spec)
		}
	}
	return found
}
