package consul

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// The source survives wrong answers, and follows Consul once that answers.
func TestWrongAnswers(t *testing.T) {
	t.Parallel()
	for _, path := range []string{
		"/v1/catalog/services", "/v1/catalog/datacenters", "/v1/health/service/web", "/v1/health/service/consul",
	} {
		for _, body := range []string{
			`null`, `[]`, `{}`, `[null]`, `{"":null}`, `{"a/../b":["x"],"..":[],"web":[]}`,
			`["", "a/b"]`, `[{"Service":{}, "Node":null}]`, `<html>sign in</html>`, `[{"Nod`, `[{"Node":null}]`, `[{"Node":{},"Service":{}}]`,
			`[{"Checks":[null],"Node":{},"Service":{}}]`, `[{"Node":{"Datacenter":"x/y"},"Service":{"ID":"a"}}]`,
		} {
			synctest.Test(t, func(t *testing.T) {
				f := withWeb("dc1", "dc2")
				var consul atomic.Bool
				r := receive(t, roundTripper(func(r *http.Request) (*http.Response, error) {
					resp, err := f.RoundTrip(r)
					if err == nil && r.URL.Path == path && !consul.Load() {
						resp.Body = io.NopCloser(strings.NewReader(body))
					}
					return resp, err
				}), Options{Datacenters: []string{"*"}}, true)
				defer r.stop()
				time.Sleep(time.Minute)
				incomplete := strings.HasSuffix(path, "/web") && strings.Contains(body, `null`) && body != `null`
				if got := r.problems("/agent's datacenter"); incomplete && !strings.Contains(got, "web: ") {
					t.Errorf("%s: the problem is %q", body, got)
				}
				consul.Store(true)
				f.change(func() {
					for _, d := range f.dcs {
						d.register(9, "web")
					}
				})
				time.Sleep(3 * listGap)
				r.is(f.dcs["dc1"], "web", web)
				r.is(f.dcs["dc2"], "web", "web.service.dc2.consul")
				if r.full() != 1 || r.down() != "" {
					t.Errorf("%s answered with %s: %d Full batches, down with %q", path, body, r.full(), r.down())
				}
			})
		}
	}
}

// An answer that does not come from Consul is an outage. The error names what to check.
func TestNotConsul(t *testing.T) {
	t.Parallel()
	for name, resp := range map[string]func() *http.Response{
		"no X-Consul-Index": func() *http.Response {
			return fail(200, `{"web":[]}`)
		},
		"invalid character": func() *http.Response {
			return fail(200, `<html>`)
		},
		"check that address is Consul's HTTP interface": func() *http.Response {
			return fail(404, "404 page not found")
		},
		"raise limits.http_max_conns_per_client": func() *http.Response {
			return fail(429, "too many concurrent connections")
		},
		"remove partition and namespaces from the settings": func() *http.Response {
			return fail(400, "a Consul Enterprise feature")
		},
		"check the settings of the source": func() *http.Response {
			return fail(400, "Invalid query")
		},
		"(a [31m b)": func() *http.Response {
			return fail(500, "a\x1b[31m\r\nb")
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := receive(t, roundTripper(func(r *http.Request) (*http.Response, error) {
				out := resp()
				out.Request = r
				return out, nil
			}), Options{Reads: readsStale}, true)
			defer r.stop()
			time.Sleep(time.Second)
			if got := r.down(); !strings.Contains(got, name) {
				t.Errorf("it is down with %q, want %q", got, name)
			}
		})
	}
}

// Each query has the parameters of the settings.
func TestQueries(t *testing.T) {
	t.Parallel()
	for want, o := range map[string]Options{
		"ns=shop&partition=eu": {Namespaces: []string{"shop"}, Partition: "eu"},
		"stale=":               {Reads: readsStale},
		"":                     {},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := withWeb("dc1")
			r := receive(t, f, o, true)
			defer r.stop()
			time.Sleep(time.Second)
			synctest.Wait()
			f.mu.Lock()
			defer f.mu.Unlock()
			for _, u := range f.queries {
				q := u.Query()
				q.Del("index")
				q.Del("wait")
				if got := q.Encode(); got != want {
					t.Errorf("the query %s has %q, want %q", u.Path, got, want)
				}
			}
		})
	}
}
