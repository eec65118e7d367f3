package consul

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/registry"
)

// replies are what the source asks Consul for, by path, and what one with a service web in the datacenters dc1, its own, and
// dc2 says.
var replies = map[string]string{
	"/v1/catalog/datacenters":      `["dc1","dc2"]`,
	"/v1/catalog/services":         `{"consul":[],"web":[]}`,
	"/v1/catalog/node/" + sentinel: `null`,
	"/v1/health/service/consul":    `[{"Node":{"Node":"s","Address":"10.0.0.9","Datacenter":"dc1"},"Service":{"ID":"consul","Service":"consul","Port":8300}}]`,
	"/v1/health/service/web":       `[{"Node":{"Node":"n","Address":"10.0.0.1","Datacenter":"dc1"},"Service":{"ID":"web-1","Service":"web","Port":80},"Checks":[]}]`,
	"/v1/health/state/critical":    `[]`,
	"/v1/health/state/warning":     `[]`,
}

// wire answers without a network: one path may be answered with something else than by a Consul.
type wire struct {
	path, body string
	index      uint64
	off        atomic.Bool // everything is answered as by a Consul
}

func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	body, index := w.says(r.URL.Path)
	wait, err := time.ParseDuration(r.URL.Query().Get("wait"))
	for end := time.Now().Add(wait); err == nil && r.URL.Query().Get("index") == fmt.Sprint(index) && time.Now().Before(end); {
		if err := sleep(r.Context(), time.Second); err != nil {
			return nil, err
		}
		body, index = w.says(r.URL.Path)
	}
	if trace := httptrace.ContextClientTrace(r.Context()); trace != nil {
		trace.GotFirstResponseByte()
	}
	h := http.Header{"X-Consul-Index": {fmt.Sprint(index)}, "X-Consul-Knownleader": {"true"}, "X-Consul-Lastcontact": {"0"}}
	return &http.Response{StatusCode: 200, Header: h, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
}

// says is the answer of now to who asks for path.
func (w *wire) says(path string) (body string, index uint64) {
	switch {
	case w.off.Load():
		return replies[path], 200
	case path == w.path:
		return w.body, w.index
	}
	return replies[path], 100
}

// nonsensical has a source ask a Consul that answers one path with nonsense from the start, and after a minute as it should.
// Whatever it says until then is what a mesh can use, and then it is what Consul has.
func nonsensical(t *testing.T, path, body string, index uint64) {
	t.Helper()
	s, err := New(Config{Name: "wire", Options: Options{Address: "http://consul.test:8500", Datacenters: []string{"*"}}, Log: hclog.NewNullLogger()})
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{path: path, body: body, index: index}
	if s.client.api, err = api.NewClient(&api.Config{Address: "http://consul.test:8500", HttpClient: &http.Client{Transport: w}}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	time.AfterFunc(time.Minute, func() { w.off.Store(true) })
	out, done := make(chan feed.Batch[registry.Instances]), make(chan error, 1)
	go func() { done <- s.Run(ctx, out) }()
	merged := feed.NewMerger([]string{s.Name()}, func(in registry.Instances) registry.Key { return in.Service.Key })
	for running := true; running; {
		select {
		case b := <-out:
			for _, u := range b.Updates {
				for _, in := range u.Items {
					sane(t, in)
				}
			}
			merged.Apply(b, time.Now())
		case <-ctx.Done():
			running = false
		}
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if got := merged.Sources()[0]; !got.Synced || got.Error != "" {
		t.Errorf("%s answered with %q: at the end it is %+v", path, body, got)
	}
	for _, host := range []string{"web.service.consul", "web.service.dc2.consul"} {
		if len(merged.Items(registry.Key{Host: host, Namespace: "default"})) != 1 {
			t.Errorf("%s answered with %q: %s is not there at the end", path, body, host)
		}
	}
}

// FuzzAnswers has each question of a source answered with nonsense: nothing panics, nothing that no mesh can use comes out, and
// when Consul answers again all is well.
func FuzzAnswers(f *testing.F) {
	paths := make([]string, 0, len(replies))
	for path := range replies {
		paths = append(paths, path)
	}
	slices.Sort(paths)
	for i := range paths {
		for _, body := range []string{
			`[null]`, `null`, `{}`, `[]`, `[{}]`, `1`, ``, `[{"Node":null}]`, `[{"Node":{},"Service":{}}]`, `[""]`, `["dc1","a/b",".."]`, `["DC 1"]`, `{"":null}`,
			`{"a/../b":["x"],"consul":null,"web":[]}`, `{"Results":[{}],"Errors":[null]}`, `[{"Checks":[null],"Node":{"Datacenter":"x/y"},"Service":{"ID":"a"}}]`,
		} {
			f.Add(uint8(i), body, uint64(100))
		}
	}
	f.Add(uint8(4), `[null]`, uint64(0))
	f.Fuzz(func(t *testing.T, path uint8, body string, index uint64) {
		if strings.Count(body, `":`) > 50 {
			return // so many services are no other than a few
		}
		synctest.Test(t, func(t *testing.T) { nonsensical(t, paths[int(path)%len(paths)], body, index) })
	})
}
