package consul

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/hashicorp/consul/api"

	"github.com/ashore-mesh/ashore/internal/testlog"
	"github.com/ashore-mesh/ashore/registry"
)

// receiver runs a source in a synctest bubble and records its batches.
type receiver struct {
	t    *testing.T
	stop func()

	mu      sync.Mutex
	batches []batch           // guarded by mu
	groups  map[string]update // guarded by mu
}

// receive runs a source until the test ends or stop is called. The connection is shared as over
// HTTP/2, or plain HTTP.
func receive(t *testing.T, f http.RoundTripper, o Options, shared bool) *receiver {
	t.Helper()
	o.Address = "http://consul.test:8500"
	s, err := New(Config{Name: "consul:test", Options: o, Log: testlog.New(t)})
	if err != nil {
		t.Fatal(err)
	}
	s.client.api, err = api.NewClient(&api.Config{Address: o.Address, HttpClient: &http.Client{Transport: f}})
	if err != nil {
		t.Fatal(err)
	}
	s.client.shared = func() bool { return shared }
	r := &receiver{t: t, groups: map[string]update{}}
	ctx, cancel := context.WithCancel(context.Background())
	out, done := make(chan batch), make(chan error, 1)
	go func() { done <- s.Run(ctx, out); close(out) }()
	go func() {
		for b := range out {
			r.take(b)
		}
	}()
	r.stop = func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	return r
}

func (r *receiver) take(b batch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if b.Down != nil && (b.Full || len(b.Updates) > 0) {
		r.t.Errorf("a batch with Down has content: %+v", b)
	}
	r.batches = append(r.batches, b)
	was := r.groups
	if b.Full {
		r.groups = map[string]update{}
	}
	for _, u := range b.Updates {
		if u.Unreadable {
			u.Items = was[u.Group].Items
		}
		r.groups[u.Group] = u
	}
}

// sent returns the batches.
func (r *receiver) sent() []batch {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.batches)
}

// since returns the batches and deletes them.
func (r *receiver) since() []batch {
	list := r.sent()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.batches = nil
	return list
}

// down returns the error of the last batch.
func (r *receiver) down() string {
	list := r.sent()
	if len(list) == 0 || list[len(list)-1].Down == nil {
		return ""
	}
	return list[len(list)-1].Down.Error()
}

// full returns the number of Full batches.
func (r *receiver) full() (n int) {
	for _, b := range r.sent() {
		if b.Full {
			n++
		}
	}
	return n
}

// all returns every group by name.
func (r *receiver) all() map[string]update {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.groups)
}

// restore adds a group that was saved before the start.
func (r *receiver) restore(group string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.groups[group] = update{Group: group}
}

// host returns the endpoints of a host: their addresses and states.
func (r *receiver) host(host string) string {
	states := map[registry.Health]string{registry.Healthy: api.HealthPassing, registry.Unhealthy: api.HealthCritical}
	var out []string
	for _, u := range r.all() {
		for _, in := range u.Items {
			for _, e := range in.Endpoints.All() {
				if in.Service.Host == host {
					out = append(out, e.Address+" "+states[e.Health])
				}
			}
		}
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// problems returns the texts of all problems of a group.
func (r *receiver) problems(group string) string {
	var out []string
	for _, p := range r.all()[group].Problems {
		out = append(out, p.Text)
	}
	return strings.Join(out, "\n")
}

// is checks that a host has the instances of a service in the fake.
func (r *receiver) is(d *fakeDC, name, host string) {
	r.t.Helper()
	if got, want := r.host(host), d.is(name); got != want {
		r.t.Errorf("%s is %q, want %q", host, got, want)
	}
}
