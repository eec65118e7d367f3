package gen

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/goldentest"
	"github.com/ashore-mesh/ashore/internal/secret"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// A proxy has the secrets of its own namespace that something names for it. Sidecars have none of a
// rule without workloadSelector, and do not connect in plaintext instead.
func TestWhoHasSecrets(t *testing.T) {
	t.Parallel()
	objects := parsed(t, []byte(`
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: gw, namespace: edge}
spec:
  selector: {}
  servers: [{port: {number: 443, name: a, protocol: HTTPS}, hosts: ["a.example"], tls: {mode: SIMPLE, credentialName: web}}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: gw, namespace: edge}
spec: {hosts: [a.example], gateways: [gw], http: [{route: [{destination: {host: partner.test}}]}]}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: partner, namespace: edge}
spec: {hosts: [partner.test], resolution: STATIC, ports: [{number: 443, name: http}], endpoints: [{address: 10.0.0.9}]}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: partner, namespace: edge}
spec: {host: partner.test, trafficPolicy: {tls: {mode: MUTUAL, credentialName: partner}}}
`))
	in := goldentest.Inputs(t, objects, goldentest.Counting)
	all := map[secret.Name]secret.Secret{}
	for _, name := range []string{"edge/web", "edge/partner", "edge/unused", "shop/partner", "other/unused"} {
		namespace, short, _ := strings.Cut(name, "/")
		all[secret.Name{Namespace: namespace, Name: short}] = fakeSecret(name, "tls.crt tls.key ca.crt")
	}
	in.Secrets = secret.NewSet(nil, all, nil)
	selected := in
	key := config.Key{Kind: config.DestinationRule, Namespace: "edge", Name: "partner"}
	for _, o := range parsed(t, []byte(`
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: partner, namespace: edge}
spec: {host: partner.test, workloadSelector: {matchLabels: {app: client}}, trafficPolicy: {tls: {mode: MUTUAL, credentialName: partner}}}
`)) {
		selected.Objects = in.Objects.With(key, o)
	}
	rotated(t, in, all)
	g := New()
	const web, partner = "kubernetes://web", "kubernetes://partner kubernetes://partner-cacert"
	for name, tc := range map[string]struct {
		in    push.Inputs
		proxy goldentest.Proxy
		want  string // secrets
		names string // what the cluster names
	}{
		"a gateway":                     {in, goldentest.Proxy{Type: "router", Namespace: "edge", Identity: true}, partner + " " + web, partner},
		"a gateway of shop":             {in, goldentest.Proxy{Type: "router", Namespace: "shop", Identity: true}, partner, partner},
		"a gateway of other":            {in, goldentest.Proxy{Type: "router", Namespace: "other", Identity: true}, "", partner},
		"a gateway without an identity": {in, goldentest.Proxy{Type: "router", Namespace: "edge"}, "", partner},
		"a sidecar":                     {in, goldentest.Proxy{Namespace: "edge", Identity: true}, "", "invalid://"},
		"a selected sidecar":            {selected, goldentest.Proxy{Namespace: "edge", Identity: true, Labels: map[string]string{"app": "client"}}, partner, partner},
		"one without an identity":       {selected, goldentest.Proxy{Namespace: "edge", Labels: map[string]string{"app": "client"}}, "", partner},
	} {
		tc.proxy.Addresses = []string{"10.0.0.1"}
		c := push.Build(nil, tc.in)
		sc := c.Scope(c.Classify(tc.proxy.Node(t)))
		var got []string
		for r := range g.Set(resource.SecretType, sc).All() {
			got = append(got, r.Name)
		}
		slices.Sort(got)
		if strings.Join(got, " ") != tc.want {
			t.Errorf("%s has %q, want %q", name, got, tc.want)
		}
		cluster := asYAML(t, g.Set(resource.ClusterType, sc))
		for _, n := range strings.Fields(tc.names) {
			if !strings.Contains(cluster, "name: "+n+"\n") {
				t.Errorf("%s: the cluster does not name %s:\n%s", name, n, cluster)
			}
		}
	}
}

// rotated checks that another certificate changes one secret of a gateway, and nothing else.
func rotated(t *testing.T, in push.Inputs, all map[secret.Name]secret.Secret) {
	t.Helper()
	g := New()
	gateway := goldentest.Proxy{Type: "router", Namespace: "edge", Identity: true, Addresses: []string{"10.0.0.1"}}
	before := push.Build(nil, in)
	next := maps.Clone(all)
	next[secret.Name{Namespace: "edge", Name: "web"}] = fakeSecret("another", "tls.crt tls.key")
	in.Secrets = secret.NewSet(in.Secrets, next, nil)
	after := push.Build(before, in)
	old, now := before.Scope(before.Classify(gateway.Node(t))), after.Scope(after.Classify(gateway.Node(t)))
	for _, typeURL := range []string{resource.ClusterType, resource.ListenerType, resource.RouteType, resource.EndpointType} {
		if g.Set(typeURL, old) != g.Set(typeURL, now) {
			t.Errorf("a rotation changes %s", typeURL)
		}
	}
	was := g.Set(resource.SecretType, old)
	for r := range g.Set(resource.SecretType, now).All() {
		if changed := was.Get(r.Name).Version() != r.Version(); changed != (r.Name == "kubernetes://web") {
			t.Errorf("%s changed: %v", r.Name, changed)
		}
	}
}
