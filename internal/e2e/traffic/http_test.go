package traffic

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/internal/e2e/harness"
)

// httpCase is one behaviour of a VirtualService: its routes, a request, and what has to come back.
type httpCase struct {
	routes  string
	policy  string
	request harness.Request
	check   func(harness.Answer) error
}

// Every form of HTTP routing, each on a host of its own, through one Envoy.
func TestHTTPRouting(t *testing.T) {
	t.Parallel()
	m := harness.New(t, nil)
	v1, v2 := backends(t, m)
	cases := httpCases()
	for name, c := range cases {
		m.Write(hostOf(name)+".yaml", service(hostOf(name), at(v1), at(v2))+subsets(hostOf(name),
			c.policy)+routes(hostOf(name), c.routes))
	}
	p := m.Proxy(harness.Workload{Name: "client"})
	client := p.Client(port)
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := c.request
			r.Host = hostOf(name)
			client.Want(t, name, r, c.check)
		})
	}
}

func hostOf(name string) string { return strings.ReplaceAll(name, " ", "-") + ".test" }

// to is a route to a subset.
func to(subset string) string {
	return fmt.Sprintf("    route: [{destination: {host: HOST, subset: %s}}]\n", subset)
}

// otherwise is a last route, to v1.
const otherwise = "  - route: [{destination: {host: HOST, subset: v1}}]\n"

// delegate has a route for a part of the paths of the route that delegates.
const delegate = `---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: HOST}
spec:
  http:
  - match: [{uri: {exact: /team/a}}]
    headers: {response: {set: {x-team: "yes"}}}
    route: [{destination: {host: HOST, subset: v2}}]
`

func httpCases() map[string]httpCase {
	return map[string]httpCase{
		"exact path":         {routes: "  - match: [{uri: {exact: /a}}]\n" + to("v2") + otherwise, request: harness.Request{Path: "/a"}, check: harness.From("v2")},
		"exact path missed":  {routes: "  - match: [{uri: {exact: /a}}]\n" + to("v2") + otherwise, request: harness.Request{Path: "/a/b"}, check: harness.From("v1")},
		"path prefix":        {routes: "  - match: [{uri: {prefix: /a}}]\n" + to("v2") + otherwise, request: harness.Request{Path: "/a/b?c=d"}, check: harness.From("v2")},
		"path regex":         {routes: "  - match: [{uri: {regex: '/a[0-9]+'}}]\n" + to("v2") + otherwise, request: harness.Request{Path: "/a42"}, check: harness.From("v2")},
		"path any case":      {routes: "  - match: [{uri: {prefix: /AbC}, ignoreUriCase: true}]\n" + to("v2") + otherwise, request: harness.Request{Path: "/aBcd"}, check: harness.From("v2")},
		"method":             {routes: "  - match: [{method: {exact: DELETE}}]\n" + to("v2") + otherwise, request: harness.Request{Method: "DELETE"}, check: harness.From("v2")},
		"authority":          {routes: "  - match: [{authority: {prefix: author}}]\n" + to("v2") + otherwise, check: harness.From("v2")},
		"header exact":       {routes: "  - match: [{headers: {x-user: {exact: ann}}}]\n" + to("v2") + otherwise, request: header("x-user", "ann"), check: harness.From("v2")},
		"header missed":      {routes: "  - match: [{headers: {x-user: {exact: ann}}}]\n" + to("v2") + otherwise, request: header("x-user", "bob"), check: harness.From("v1")},
		"header prefix":      {routes: "  - match: [{headers: {x-user: {prefix: an}}}]\n" + to("v2") + otherwise, request: header("x-user", "ann"), check: harness.From("v2")},
		"header regex":       {routes: "  - match: [{headers: {x-user: {regex: 'a.*n'}}}]\n" + to("v2") + otherwise, request: header("x-user", "ann"), check: harness.From("v2")},
		"header present":     {routes: "  - match: [{headers: {x-user: {}}}]\n" + to("v2") + otherwise, request: header("x-user", "zoe"), check: harness.From("v2")},
		"without header":     {routes: "  - match: [{withoutHeaders: {x-user: {exact: ann}}}]\n" + to("v2") + otherwise, request: header("x-user", "ann"), check: harness.From("v1")},
		"without header met": {routes: "  - match: [{withoutHeaders: {x-user: {exact: ann}}}]\n" + to("v2") + otherwise, request: header("x-user", "bob"), check: harness.From("v2")},
		"query":              {routes: "  - match: [{queryParams: {q: {exact: one}}}]\n" + to("v2") + otherwise, request: harness.Request{Path: "/?q=one"}, check: harness.From("v2")},
		"any of two matches": {routes: "  - match: [{uri: {exact: /a}}, {uri: {exact: /b}}]\n" + to("v2") + otherwise, request: harness.Request{Path: "/b"}, check: harness.From("v2")},
		"all of one match":   {routes: "  - match: [{uri: {exact: /a}, headers: {x-user: {exact: ann}}}]\n" + to("v2") + otherwise, request: harness.Request{Path: "/a"}, check: harness.From("v1")},
		"source labels":      {routes: "  - match: [{sourceLabels: {app: other}}]\n" + to("v2") + otherwise, check: harness.From("v1")},
		"listener port":      {routes: "  - match: [{port: 8080}]\n" + to("v2") + otherwise, check: harness.From("v2")},
		"the first route that matches": {
			routes: "  - match: [{uri: {prefix: /a}}]\n" + to("v1") + "  - match: [{uri: {prefix: /a/b}}]\n" + to("v2"), request: harness.Request{Path: "/a/b"}, check: harness.From("v1"),
		},
		"no route matches": {routes: "  - match: [{uri: {exact: /a}}]\n" + to("v2"), request: harness.Request{Path: "/b"}, check: harness.Status(404)},
		"redirect": {
			routes: "  - redirect: {uri: /new, authority: other.test, redirectCode: 308}\n", request: harness.Request{Path: "/old"},
			check: all(harness.Status(308), answerHeader("Location", "http://other.test/new")),
		},
		"delegate": {
			routes: "  - match: [{uri: {prefix: /team}}]\n    delegate: {name: HOST}\n" + otherwise + delegate, request: harness.Request{Path: "/team/a"},
			check: all(harness.From("v2"), answerHeader("X-Team", "yes")),
		},
		"delegate missed": {
			routes: "  - match: [{uri: {prefix: /team}}]\n    delegate: {name: HOST}\n" + otherwise + delegate, request: harness.Request{Path: "/team/b"},
			check: harness.From("v1"),
		},
		"direct response": {
			routes: "  - directResponse: {status: 418, body: {string: teapot}}\n",
			check: all(harness.Status(418), func(a harness.Answer) error {
				if a.Body != "teapot" {
					return fmt.Errorf("body %q, want teapot", a.Body)
				}
				return nil
			}),
		},
		"rewrite": {
			routes: "  - match: [{uri: {prefix: /old}}]\n    rewrite: {uri: /new, authority: inner.test}\n" + to("v1"), request: harness.Request{Path: "/old/x"},
			check: all(harness.From("v1"), saw(func(s harness.Seen) error {
				return wants(s.Host+s.Path,
					"inner.test/new/x")
			})),
		},
		"rewrite by regex": {
			routes: "  - rewrite: {uriRegexRewrite: {match: '^/api/v[0-9]+/(.*)', rewrite: '/\\1'}}\n" + to("v1"), request: harness.Request{Path: "/api/v3/users"},
			check: all(harness.From("v1"), saw(func(s harness.Seen) error { return wants(s.Path, "/users") })),
		},
		"request headers": {
			routes: "  - headers: {request: {set: {x-set: one}, add: {x-add: two}, remove: [x-gone]}}\n" + to("v1"), request: header("x-gone", "here"),
			check: saw(func(s harness.Seen) error {
				return wants(s.Header.Get("x-set")+s.Header.Get("x-add")+s.Header.Get("x-gone"), "onetwo")
			}),
		},
		"response headers": {
			routes: "  - headers: {response: {set: {x-set: one}, remove: [x-backend]}}\n" + to("v1"),
			check:  all(answerHeader("X-Set", "one"), answerHeader("X-Backend", "")),
		},
		"headers of one destination": {
			routes: "  - route: [{destination: {host: HOST, subset: v1}, weight: 0, headers: {request: {set: {x-to: v1}}}}, {destination: {host: HOST, subset: v2}, weight: 100, headers: {request: {set: {x-to: v2}}}}]\n",
			check: all(harness.From("v2"), saw(func(s harness.Seen) error {
				return wants(s.Header.Get("x-to"),
					"v2")
			})),
		},
		"timeout":       {routes: "  - timeout: 0.2s\n" + to("v1"), request: header("x-delay", "5s"), check: harness.Status(504)},
		"fault abort":   {routes: "  - fault: {abort: {httpStatus: 418, percentage: {value: 100}}}\n" + to("v1"), check: harness.Status(418)},
		"no fault":      {routes: "  - fault: {abort: {httpStatus: 418, percentage: {value: 0}}}\n" + to("v1"), check: harness.From("v1")},
		"delay expires": {routes: "  - fault: {delay: {fixedDelay: 0.4s, percentage: {value: 100}}}\n" + to("v1"), check: harness.From("v1")},
		"cors preflight": {
			routes: "  - corsPolicy: {allowOrigins: [{exact: https://good.test}], allowMethods: [GET, PUT], allowHeaders: [x-a], maxAge: 24h, allowCredentials: true}\n" + to("v1"),
			request: harness.Request{Method: "OPTIONS", Header: map[string]string{"Origin": "https://good.test",
				"Access-Control-Request-Method": "PUT"}},
			check: all(answerHeader("Access-Control-Allow-Origin", "https://good.test"),
				answerHeader("Access-Control-Allow-Methods", "GET,PUT"), answerHeader("Access-Control-Max-Age",
					"86400")),
		},
		"cors refuses": {
			routes:  "  - corsPolicy: {allowOrigins: [{exact: https://good.test}], allowMethods: [GET]}\n" + to("v1"),
			request: header("Origin", "https://evil.test"),
			check:   answerHeader("Access-Control-Allow-Origin", ""),
		},
		"tls to a plaintext backend": {policy: "{tls: {mode: SIMPLE, insecureSkipVerify: true}}", routes: "  -" + to("v1")[3:], check: harness.Status(503)},
	}
}

func header(k, v string) harness.Request {
	return harness.Request{Header: map[string]string{k: v}}
}

func all(checks ...func(harness.Answer) error) func(harness.Answer) error {
	return func(a harness.Answer) error {
		var errs []error
		for _, c := range checks {
			errs = append(errs, c(a))
		}
		return errors.Join(errs...)
	}
}

func answerHeader(k, want string) func(harness.Answer) error {
	return func(a harness.Answer) error {
		if got := a.Header.Get(k); got != want {
			return fmt.Errorf("%d with header %s: %q, want %q", a.Status, k, got, want)
		}
		return nil
	}
}

func saw(check func(harness.Seen) error) func(harness.Answer) error {
	return func(a harness.Answer) error {
		if a.Status != http.StatusOK {
			return fmt.Errorf("got %d (%.200s), want 200", a.Status, a.Body)
		}
		return check(a.Seen)
	}
}

func wants(got, want string) error {
	if got != want {
		return fmt.Errorf("the backend saw %q, want %q", got, want)
	}
	return nil
}

// An 80/20 split holds within statistics: of 2,000 requests, five standard deviations.
func TestSplit(t *testing.T) {
	t.Parallel()
	m := harness.New(t, nil)
	v1, v2 := backends(t, m)
	m.Write("web.yaml", service("web.test", at(v1), at(v2))+subsets("web.test", "")+
		routes("web.test", "  - route: [{destination: {host: HOST, subset: v1}, weight: 80}, {destination: {host: HOST, subset: v2}, weight: 20}]\n"))
	client := m.Proxy(harness.Workload{Name: "client"}).Client(port)
	r := harness.Request{Host: "web.test"}
	client.Want(t, "the route is there", r, harness.Status(200))
	before := v2.Requests()
	const n = 2000
	for range n {
		if a, err := client.Do(r); err != nil || a.Status != 200 {
			t.Fatalf("got %v, %v", a.Status, err)
		}
	}
	// the standard deviation is sqrt(2000 * 0.2 * 0.8) = 18
	if got := v2.Requests() - before; got < 400-90 || got > 400+90 {
		t.Errorf("v2 answered %d of %d, want about 400", got, n)
	}
}

// A failing backend's requests are tried again at another one.
func TestRetry(t *testing.T) {
	t.Parallel()
	m := harness.New(t, nil)
	v1, v2 := backends(t, m)
	v1.Fail.Store(true)
	m.Write("web.yaml", service("web.test", at(v1), at(v2))+
		routes("web.test", "  - retries: {attempts: 5, perTryTimeout: 2s, retryOn: 5xx}\n    route: [{destination: {host: HOST}}]\n"))
	client := m.Proxy(harness.Workload{Name: "client"}).Client(port)
	client.Want(t, "retried at v2", harness.Request{Host: "web.test"}, harness.From("v2"))
	for range 50 {
		if a, err := client.Do(harness.Request{Host: "web.test"}); err != nil || harness.From("v2")(a) != nil {
			t.Fatalf("got %d %q, %v, want every request answered by v2", a.Status, a.Body, err)
		}
	}
	if v1.Requests() == 0 {
		t.Error("v1 was never tried, the test proves nothing")
	}
}

// A mirror sees what the destination sees, its Host included, and its answers are thrown away.
func TestMirror(t *testing.T) {
	t.Parallel()
	m := harness.New(t, nil)
	v1, v2 := backends(t, m)
	v2.Fail.Store(true)
	m.Write("web.yaml", service("web.test", at(v1), at(v2))+subsets("web.test", "")+
		routes("web.test", "  - mirror: {host: HOST, subset: v2}\n    mirrorPercentage: {value: 100}\n"+to("v1")))
	client := m.Proxy(harness.Workload{Name: "client"}).Client(port)
	client.Want(t, "answered by v1", harness.Request{Host: "web.test", Path: "/mirrored"}, harness.From("v1"))
	harness.Eventually(t, "the mirror saw the request", func() error {
		for _, s := range v2.Last() {
			if s.Path == "/mirrored" && s.Host != "web.test" {
				t.Fatalf("it is for host %q, want web.test", s.Host)
			}
			if s.Path == "/mirrored" {
				return nil
			}
		}
		return errors.New("it did not")
	})
}

// A delay by fault takes at least that long.
func TestDelay(t *testing.T) {
	t.Parallel()
	m := harness.New(t, nil)
	v1, _ := backends(t, m)
	m.Write("web.yaml", service("web.test", at(v1))+routes("web.test",
		"  - fault: {delay: {fixedDelay: 0.5s, percentage: {value: 100}}}\n    route: [{destination: {host: HOST}}]\n"))
	client := m.Proxy(harness.Workload{Name: "client"}).Client(port)
	client.Want(t, "answered", harness.Request{Host: "web.test"}, harness.From("v1"))
	start := time.Now()
	if _, err := client.Do(harness.Request{Host: "web.test"}); err != nil {
		t.Fatal(err)
	}
	// Envoy's clock is that of its last event, so a timer may end a little before its time
	if took := time.Since(start); took < 450*time.Millisecond {
		t.Errorf("answered after %v, want at least the delay", took)
	}
}

// A backend that fails is ejected, and the others answer.
func TestOutlierEjection(t *testing.T) {
	t.Parallel()
	m := harness.New(t, nil)
	v1, v2 := backends(t, m)
	v1.Fail.Store(true)
	m.Write("web.yaml", service("web.test", at(v1), at(v2))+
		subsets("web.test", "{outlierDetection: {consecutive5xxErrors: 2, interval: 0.2s, baseEjectionTime: 60s, maxEjectionPercent: 100}}")+
		routes("web.test", "  - retries: {attempts: 0}\n    route: [{destination: {host: HOST}}]\n"))
	p := m.Proxy(harness.Workload{Name: "client"})
	client := p.Client(port)
	harness.Eventually(t, "twenty requests in a row are answered by v2", func() error {
		for range 20 {
			a, err := client.Do(harness.Request{Host: "web.test"})
			if err != nil {
				return err
			}
			if err := harness.From("v2")(a); err != nil {
				return err
			}
		}
		return nil
	})
	if p.Stat("cluster.outbound|8080||web.test;.outlier_detection.ejections_active") != 1 {
		t.Error("Envoy has ejected nobody")
	}
}

// A DNS service is resolved by the proxy.
func TestDNS(t *testing.T) {
	t.Parallel()
	m := harness.New(t, nil)
	b := harness.NewBackend(t, "dns", "127.0.0.1:0")
	_, number, _ := strings.Cut(b.Address, ":")
	m.Write("dns.yaml", fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: dns}
spec:
  hosts: [dns.test]
  resolution: DNS
  ports: [{number: %d, name: http}]
  endpoints: [{address: localhost, ports: {http: %s}}]
`, port, number))
	client := m.Proxy(harness.Workload{Name: "client"}).Client(port)
	client.Want(t, "localhost resolved", harness.Request{Host: "dns.test"}, harness.From("dns"))
}
