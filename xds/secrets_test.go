package xds_test

import (
	"context"
	"crypto/tls"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/secret"
	"github.com/ashore-mesh/ashore/internal/spiffe"
	"github.com/ashore-mesh/ashore/internal/testport"
	"github.com/ashore-mesh/ashore/push"
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
		{Namespace: "edge", Name: "theirs"}: pair, {Namespace: "shop", Name: "restricted"}: pair,
	}, func(n secret.Name) bool { return n.Name == "restricted" })
	for _, p := range []*plane{plain, secure} {
		c := p.mesh.Context(xdstest.Layers(used))
		if p == plain {
			c = p.mesh.Context(nil)
		}
		c.All = all
		p.server.Publish(c, time.Now())
	}
	names := []string{"kubernetes://used", "kubernetes://unused", "kubernetes://theirs", "kubernetes://edge/theirs",
		"kubernetes://restricted", "kubernetes://none", "file-root:/x", "invalid://"}
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
	if got, removed := asked(secure, a.web()); got != 1 || removed != 7 {
		t.Errorf("with an identity it got %d and not %d", got, removed)
	}
	const web = "secret.refuse spiffe://cluster.local/ns/shop/sa/web "
	want := []string{
		web + "kubernetes://edge/theirs refused other namespace", web + "kubernetes://restricted refused no access",
		web + "kubernetes://theirs refused other namespace",
		web + "kubernetes://unused refused not used",
	}
	mu.Lock()
	if d := cmp.Diff(want, audited); d != "" {
		t.Errorf("audited (-want +got):\n%s", d)
	}
	audited = nil
	mu.Unlock()
	if got := counted(t, metrics, "ashore_secrets_refused_total"); got != 4 {
		t.Errorf("counted are %v", got)
	}
	if got, removed := asked(plain, nil); got != 0 || removed != 8 {
		t.Errorf("without an identity it got %d and not %d", got, removed)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(audited) != 5 || audited[4] != "secret.refuse 127.0.0.1 kubernetes://used refused no identity" {
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

// A gateway whose access is not known at first gets the restricted secrets once it is. Sidecars are
// not asked about.
func TestSecretAccess(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		node  string
		may   bool
		fails int // so often before there is an answer
		want  bool
		asked int
	}{
		"allowed":     {"router", true, 0, true, 1},
		"not allowed": {"router", false, 0, false, 1},
		"later":       {"router", true, 2, true, 3},
		"a sidecar":   {"sidecar", true, 0, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, asked := newAuthority(t), atomic.Int32{}
			mesh := &accessMesh{xdstest.NewMesh()}
			p := newSecurePlane(t, a, func(c *xds.Config) {
				c.Generator, c.AccessRetry = mesh, 10*time.Millisecond
				c.MayReadSecrets = func(_ context.Context, id spiffe.ID) (bool, error) {
					if id.ServiceAccount != "web" {
						t.Errorf("asked about %s", id)
					}
					if int(asked.Add(1)) <= tc.fails {
						return false, errors.New("no answer")
					}
					return tc.may, nil
				}
			})
			p.server.Publish(accessContext{mesh.Context(nil)}, time.Now())
			l := call(t, p, a.web())
			n := node(t, map[string]any{})
			n.Id = strings.Replace(n.Id, "sidecar", tc.node, 1)
			l.says(&discoveryv3.DeltaDiscoveryRequest{Node: n, TypeUrl: resource.SecretType,
				ResourceNamesSubscribe: []string{"kubernetes://web"}})
			got := false
			for tries := 0; tries < 1+min(tc.fails, 1) && !got; tries++ {
				r, err := l.hears(resource.SecretType)
				if err != nil {
					t.Fatal(err)
				}
				got = len(r.Resources) > 0
				l.says(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: resource.SecretType, ResponseNonce: r.Nonce})
			}
			if n := int(asked.Load()); got != tc.want || n != tc.asked {
				t.Errorf("got the secret: %v, want %v; asked %d times, want %d", got, tc.want, n, tc.asked)
			}
		})
	}
}

// accessContext has a scope with secrets for proxies that may read them.
type accessContext struct{ *xdstest.Context }

func (c accessContext) Classify(n push.Node) push.Facets {
	return push.Facets{Identity: n.ReadsSecrets}
}

func (c accessContext) Scope(f push.Facets) *push.Scope { return &push.Scope{Facets: f} }

// accessMesh makes the secret for scopes that have it.
type accessMesh struct{ *xdstest.Mesh }

func (accessMesh) Set(typeURL string, sc *push.Scope) resource.Set {
	if typeURL != resource.SecretType || !sc.Identity {
		return resource.Set{}
	}
	return xdstest.Layers(resource.New(resource.SecretType, "kubernetes://web", nil, func() []byte { return []byte("x") }))[typeURL]
}
