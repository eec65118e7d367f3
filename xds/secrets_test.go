package xds_test

import (
	"crypto/tls"
	"sync"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/secret"
	"github.com/ashore-mesh/ashore/internal/testport"
	"github.com/ashore-mesh/ashore/xds"
	"github.com/ashore-mesh/ashore/xds/resource"
	"github.com/ashore-mesh/ashore/xds/xdstest"
)

// A proxy that may not have a secret gets the answer that the secret does not exist. Each refusal is
// counted once, and audited with the reason. A missing secret is not a refusal.
func TestSecretsRefused(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var audited []string // guarded by mu
	metrics := prometheus.NewRegistry()
	change := func(c *xds.Config) {
		c.Registerer = metrics
		c.Audit = func(e audit.Event) {
			mu.Lock()
			defer mu.Unlock()
			audited = append(audited, e.Action+" "+e.Actor+" "+e.Target+" "+e.Outcome+" "+e.Reason)
		}
	}
	a := newAuthority(t)
	plain := newPlane(t, nil, testport.Address(t), func(c *xds.Config) { change(c); c.Verify, c.Registerer = a.verify, nil })
	secure := newSecurePlane(t, a, change)
	used := resource.New(resource.SecretType, "kubernetes://used", nil, func() []byte { return []byte("x") })
	pair := secret.Secret{Certificate: "c", Key: "k"}
	all := secret.NewSet(nil, map[secret.Name]secret.Secret{
		{Namespace: "shop", Name: "used"}: pair, {Namespace: "shop", Name: "unused"}: pair,
		{Namespace: "edge", Name: "theirs"}: pair,
	})
	for _, p := range []*plane{plain, secure} {
		c := p.mesh.Context(xdstest.Layers(used))
		if p == plain {
			c = p.mesh.Context(nil)
		}
		c.All = all
		p.server.Publish(c, time.Now())
	}
	names := []string{"kubernetes://used", "kubernetes://unused", "kubernetes://theirs", "kubernetes://edge/theirs",
		"kubernetes://none", "file-root:/x", "invalid://"}
	asked := func(p *plane, cert *tls.Certificate) (got, removed int) {
		l := call(t, p, cert)
		l.says(&discoveryv3.DeltaDiscoveryRequest{Node: node(t, map[string]any{}), TypeUrl: resource.SecretType,
			ResourceNamesSubscribe: names})
		for got+removed < len(names) {
			r, err := l.hears(resource.SecretType)
			if err != nil {
				t.Fatal(err)
			}
			got, removed = got+len(r.Resources), removed+len(r.RemovedResources)
		}
		l.hang()
		return got, removed
	}
	if got, removed := asked(secure, a.web()); got != 1 || removed != 6 {
		t.Errorf("with an identity it got %d and not %d", got, removed)
	}
	const web = "secret.refuse spiffe://cluster.local/ns/shop/sa/web "
	want := []string{
		web + "kubernetes://edge/theirs refused other namespace", web + "kubernetes://theirs refused other namespace",
		web + "kubernetes://unused refused not used",
	}
	mu.Lock()
	if d := cmp.Diff(want, audited); d != "" {
		t.Errorf("audited (-want +got):\n%s", d)
	}
	audited = nil
	mu.Unlock()
	if got := counted(t, metrics, "ashore_secrets_refused_total"); got != 3 {
		t.Errorf("counted are %v", got)
	}
	if got, removed := asked(plain, nil); got != 0 || removed != 7 {
		t.Errorf("without an identity it got %d and not %d", got, removed)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(audited) != 4 || audited[3] != "secret.refuse 127.0.0.1 kubernetes://used refused no identity" {
		t.Errorf("audited are %q", audited)
	}
}

// counted is the sum of a counter.
func counted(t *testing.T, from prometheus.Gatherer, name string) (sum float64) {
	t.Helper()
	families, err := from.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.Metric {
			sum += m.Counter.GetValue()
		}
	}
	return sum
}
