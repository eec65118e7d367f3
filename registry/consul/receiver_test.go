package consul

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/hashicorp/consul/api"

	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/testlog"
	"github.com/ashore-mesh/ashore/registry"
)

// receiver runs a source and holds what it has sent. Call its methods from the goroutine of a synctest bubble.
type receiver struct {
	t       *testing.T
	batches []feed.Batch[registry.Instances]
	groups  map[string]update
	stop    func()
}

// receive runs a source until the test ends or stop is called. The connection is shared as over HTTP/2, or plain HTTP.
func receive(t *testing.T, f http.RoundTripper, o Options, shared bool) *receiver {
	t.Helper()
	o.Address = "http://consul.test:8500"
	s, err := New(Config{Name: "test", Options: o, Log: testlog.New(t)})
	if err != nil {
		t.Fatal(err)
	}
	if s.client.api, err = api.NewClient(&api.Config{Address: o.Address, HttpClient: &http.Client{Transport: f}}); err != nil {
		t.Fatal(err)
	}
	s.client.shared = func() bool { return shared }
	r := &receiver{t: t, groups: map[string]update{}}
	ctx, cancel := context.WithCancel(context.Background())
	out, done := make(chan feed.Batch[registry.Instances]), make(chan error, 1)
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

func (r *receiver) take(b feed.Batch[registry.Instances]) {
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

// since forgets the batches that arrived and returns them.
func (r *receiver) since() []feed.Batch[registry.Instances] {
	synctest.Wait()
	list := r.batches
	r.batches = nil
	return list
}

// down is the error of the last batch.
func (r *receiver) down() string {
	synctest.Wait()
	if len(r.batches) == 0 || r.batches[len(r.batches)-1].Down == nil {
		return ""
	}
	return r.batches[len(r.batches)-1].Down.Error()
}

// full counts the Full batches.
func (r *receiver) full() (n int) {
	synctest.Wait()
	for _, b := range r.batches {
		if b.Full {
			n++
		}
	}
	return n
}

// host describes the endpoints of a host: their addresses and states.
func (r *receiver) host(host string) string {
	synctest.Wait()
	var out []string
	for _, u := range r.groups {
		for _, in := range u.Items {
			for _, e := range in.Endpoints.All() {
				if in.Service.Host == host {
					state := map[registry.Health]string{registry.Healthy: api.HealthPassing, registry.Unhealthy: api.HealthCritical}[e.Health]
					out = append(out, e.Address+" "+state)
				}
			}
		}
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// problems are the texts of all problems of a group.
func (r *receiver) problems(group string) string {
	synctest.Wait()
	var out []string
	for _, p := range r.groups[group].Problems {
		out = append(out, p.Text)
	}
	return strings.Join(out, "\n")
}

// is fails unless a host has what the fake has of a service.
func (r *receiver) is(d *fakeDC, name, host string) {
	r.t.Helper()
	if got, want := r.host(host), d.is(name); got != want {
		r.t.Errorf("%s is %q, want %q", host, got, want)
	}
}
