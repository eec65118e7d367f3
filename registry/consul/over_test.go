package consul

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/lastgood"
	"github.com/ashore-mesh/ashore/registry"
)

// over answers some questions in place of catalogs.
type over struct {
	c *catalogs

	mu sync.Mutex
	f  func(*http.Request) *http.Response // guarded by mu; may wait; nil, or what returns nil: as the catalogs do
}

func (o *over) set(f func(*http.Request) *http.Response) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.f = f
}

func (o *over) RoundTrip(r *http.Request) (*http.Response, error) {
	o.mu.Lock()
	f := o.f
	o.mu.Unlock()
	if f != nil {
		resp := f(r)
		if err := r.Context().Err(); err != nil {
			return nil, err
		}
		if resp != nil {
			if trace := httptrace.ContextClientTrace(r.Context()); trace != nil {
				trace.GotFirstResponseByte()
			}
			return resp, nil
		}
	}
	return o.c.RoundTrip(r)
}

// resp is an answer of Consul's.
func resp(r *http.Request, code int, index uint64, filtered bool, body string) *http.Response {
	h := http.Header{"X-Consul-Index": {fmt.Sprint(index)}, "X-Consul-Knownleader": {"true"}, "X-Consul-Lastcontact": {"0"}}
	if filtered {
		h.Set("X-Consul-Results-Filtered-By-ACLs", "true")
	}
	return &http.Response{StatusCode: code, Header: h, Body: io.NopCloser(strings.NewReader(body)), Request: r}
}

// lookOver runs a source of what answers until its end is called, in a bubble of synctest.
func lookOver(t *testing.T, answers http.RoundTripper, o Options, cfg lastgood.Config[registry.Instances]) *following {
	t.Helper()
	o.Address = "http://consul.test:8500"
	s, err := New(Config{Name: "test", Options: o, Log: orDiscard(cfg.Log)})
	if err != nil {
		t.Fatal(err)
	}
	if s.client.api, err = api.NewClient(&api.Config{Address: o.Address, HttpClient: &http.Client{Transport: answers}}); err != nil {
		t.Fatal(err)
	}
	cfg.Source, cfg.Encode, cfg.Decode = s, registry.EncodeInstances, registry.DecodeInstances
	if cfg.Store == nil {
		cfg.Store = &shelf{all: map[string][]byte{}}
	}
	f := &following{t: t, merged: feed.NewMerger([]string{s.Name()}, func(in registry.Instances) registry.Key { return in.Service.Key })}
	ctx, cancel := context.WithCancel(t.Context())
	out, done := make(chan feed.Batch[registry.Instances]), make(chan error, 1)
	taken := make(chan struct{})
	go func() { done <- lastgood.New(cfg).Run(ctx, out); close(out) }()
	go func() {
		defer close(taken)
		for b := range out {
			f.mu.Lock()
			f.batches++
			f.merged.Apply(b, time.Now())
			f.mu.Unlock()
		}
	}()
	f.end = func() {
		cancel()
		<-taken
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	return f
}
