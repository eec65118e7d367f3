package consul

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/testconsul"
	"github.com/ashore-mesh/ashore/internal/testlog"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/registry/consul"
)

// hostKey identifies a service in the merger of a view, as "HOST/NAMESPACE".
type hostKey string

func (k hostKey) String() string { return string(k) }

func keyOf(in registry.Instances) hostKey {
	return hostKey(in.Service.Host + "/" + in.Service.Namespace)
}

func describe(in registry.Instances) string { return in.Service.Object }

// view is what a source has sent until now, merged as in ashored. Safe for concurrent use.
type view struct {
	mu sync.Mutex
	// the following are guarded by mu
	merged  *feed.Merger[hostKey, registry.Instances]
	batches []feed.Batch[registry.Instances]
	updates int                             // of content
	items   map[string][]registry.Instances // by group
	news    chan struct{}                   // closed when a batch arrives
}

// follow runs a source with these options until the test ends.
func follow(t testing.TB, o consul.Options) *view {
	t.Helper()
	s, err := consul.New(consul.Config{Name: "test", Options: o, Log: testlog.New(t)})
	if err != nil {
		t.Fatal(err)
	}
	v := &view{news: make(chan struct{}), items: map[string][]registry.Instances{},
		merged: feed.NewMerger(feed.Config[hostKey, registry.Instances]{KeyOf: keyOf, Union: true,
			MassRemoval: 10 * time.Minute}, []feed.SourceConfig{{Name: s.Name(), Required: true}})}
	ctx, cancel := context.WithCancel(context.Background())
	out := make(chan feed.Batch[registry.Instances])
	var running sync.WaitGroup
	running.Go(func() {
		if err := s.Run(ctx, out); err != nil {
			t.Error(err)
		}
		close(out)
	})
	running.Go(func() {
		for b := range out {
			v.take(b)
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return v
}

func (v *view) take(b feed.Batch[registry.Instances]) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.merged.Apply(b, time.Now())
	v.batches = append(v.batches, b)
	for _, u := range b.Updates {
		if !v.same(u) {
			v.updates++
		}
	}
	close(v.news)
	v.news = make(chan struct{})
}

// same reports whether a group has the same items as before. The caller holds mu.
func (v *view) same(u feed.Update[registry.Instances]) bool {
	was := v.items[u.Group]
	v.items[u.Group] = u.Items
	return slices.Equal(was, u.Items)
}

// waitTime is the longest wait for an expected change. No test depends on its value.
const waitTime = 60 * time.Second

// until waits until ok returns true, and fails the test if it does not.
func (v *view) until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	if !v.comes(ok) {
		v.mu.Lock()
		defer v.mu.Unlock()
		t.Fatalf("timeout: %s; status: %+v", what, v.merged.Status())
	}
}

// comes waits until ok returns true. It returns false after waitTime.
func (v *view) comes(ok func() bool) bool {
	end := time.After(waitTime)
	for {
		v.mu.Lock()
		done, news := ok(), v.news
		v.mu.Unlock()
		if done {
			return true
		}
		select {
		case <-news:
		case <-end:
			return false
		}
	}
}

// endpoints returns the endpoints of a host in the namespace default, as "address:port health". The
// caller holds mu.
func (v *view) endpoints(host string) []string {
	items := v.merged.Items(hostKey(host + "/default"))
	if len(items) == 0 {
		return nil
	}
	out, first := []string{}, items[0].Item
	for _, ep := range first.Endpoints.All() {
		health := map[registry.Health]string{registry.Healthy: "healthy", registry.Unhealthy: "unhealthy",
			registry.Draining: "draining"}[ep.Health]
		out = append(out, fmt.Sprintf("%s:%d %s", ep.Address, ep.Port(first.Service.Ports[0]), health))
	}
	return out
}

// has waits until a host has these endpoints.
func (v *view) has(t testing.TB, host string, want ...string) {
	t.Helper()
	v.until(t, fmt.Sprintf("%s has %q", host, want), func() bool { return slices.Equal(v.endpoints(host), want) })
}

// synced waits for the first full batch.
func (v *view) synced(t testing.TB) {
	t.Helper()
	v.until(t, "the first full batch", func() bool { return v.merged.Status()[0].Synced })
}

// wantProblem waits until an error or a problem of the source has this text. An empty text means
// that there is none.
func (v *view) wantProblem(t testing.TB, text string) {
	t.Helper()
	v.until(t, fmt.Sprintf("a problem with %q", text), func() bool {
		texts := v.merged.Status()[0].Error
		for _, p := range v.merged.Problems(describe) {
			texts += p.Text
		}
		return text == "" && texts == "" || text != "" && strings.Contains(texts, text)
	})
}

// inTouch fails the test if the source is down.
func (v *view) inTouch(t testing.TB) {
	t.Helper()
	v.mu.Lock()
	defer v.mu.Unlock()
	if s := v.merged.Status()[0]; s.Error != "" {
		t.Errorf("the source is down: %+v", s)
	}
}

// isSynced reports whether a full batch has arrived.
func (v *view) isSynced() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.merged.Status()[0].Synced
}

// knows says whether there is a service of that host.
func (v *view) knows(host string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.endpoints(host) != nil
}

// said counts the batches and their updates of content.
func (v *view) said() (batches, updates int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.batches), v.updates
}

// catalog is Consul's own client, which makes what is to be seen.
type catalog struct {
	t testing.TB
	c *api.Client
}

func newCatalog(t testing.TB, a *testconsul.Agent, token string) catalog {
	t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: 4}
	t.Cleanup(transport.CloseIdleConnections)
	c, err := api.NewClient(&api.Config{Address: a.Address, Token: token,
		HttpClient: &http.Client{Transport: transport}})
	if err != nil {
		t.Fatal(err)
	}
	return catalog{t, c}
}

// put registers an instance, "web-1" of the service "web", with a check in a state.
func (c catalog) put(id, address string, port int, status string, more ...func(*api.AgentService)) {
	c.t.Helper()
	name, _, _ := strings.Cut(id, "-")
	s := &api.AgentService{ID: id, Service: name, Address: address, Port: port}
	for _, f := range more {
		f(s)
	}
	_, err := c.c.Catalog().Register(&api.CatalogRegistration{
		Node: "node-of-" + id, Address: "10.9.9.9", SkipNodeUpdate: true, Service: s,
		Check: &api.AgentCheck{Node: "node-of-" + id, CheckID: "service:" + id, Name: "alive", Status: status,
			ServiceID: id},
	}, nil)
	if err != nil {
		c.t.Fatal(err)
	}
}

// health sets the state of an instance's check.
func (c catalog) health(id, status string) {
	c.t.Helper()
	_, err := c.c.Catalog().Register(&api.CatalogRegistration{
		Node: "node-of-" + id, Address: "10.9.9.9", SkipNodeUpdate: true,
		Check: &api.AgentCheck{Node: "node-of-" + id, CheckID: "service:" + id, Name: "alive", Status: status,
			ServiceID: id},
	}, nil)
	if err != nil {
		c.t.Fatal(err)
	}
}

// flap sets the state of the check of an instance that many has registered.
func (c catalog) flap(id, node, status string) {
	c.t.Helper()
	_, err := c.c.Catalog().Register(&api.CatalogRegistration{Node: node, Address: "10.9.9.9", SkipNodeUpdate: true,
		Check: &api.AgentCheck{Node: node, CheckID: "service:" + id, Name: "http", Status: status, ServiceID: id}}, nil)
	if err != nil {
		c.t.Fatal(err)
	}
}

// remove deregisters an instance with its node.
func (c catalog) remove(id string) {
	c.t.Helper()
	if _, err := c.c.Catalog().Deregister(&api.CatalogDeregistration{Node: "node-of-" + id}, nil); err != nil {
		c.t.Fatal(err)
	}
}

// way is one way to the same agent.
type way struct {
	name    string
	options func(a *testconsul.Agent) consul.Options
}

// ways are those on which Consul can be reached: over TLS, where queries share connections, and
// without.
func ways() []way {
	return []way{
		{"tls", func(a *testconsul.Agent) consul.Options {
			return consul.Options{Address: "https://" + a.Secure, TLS: consul.TLSOptions{CAFile: a.CAFile}}
		}},
		{"plain", func(a *testconsul.Agent) consul.Options { return consul.Options{Address: "http://" + a.Address} }},
	}
}
