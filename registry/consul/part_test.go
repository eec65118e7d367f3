package consul

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/lastgood"
	"github.com/ashore-mesh/ashore/internal/testlog"
	"github.com/ashore-mesh/ashore/registry"
)

// catalogs are Consul's datacenters dc1, the agent's own, and dc2, without a network: for the time of synctest.
type catalogs struct {
	mu sync.Mutex
	// the following are guarded by mu
	index    uint64
	lag      time.Duration
	services map[string]string // "dc2/web": the state of its one check
	hidden   map[string]bool   // the token does not read them
	nulls    bool              // an answer about a service is a list of nothing
	ports    [2]int            // of the instances of those that have two
	fails    func(dc, path string) bool
	changed  chan struct{}
}

func newCatalogs(services ...string) *catalogs {
	c := &catalogs{index: 10, services: map[string]string{}, hidden: map[string]bool{}, changed: make(chan struct{})}
	for _, s := range services {
		c.services[s] = api.HealthPassing
	}
	return c
}

// change has f change what is there, and all that wait be answered.
func (c *catalogs) change(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
	c.index++
	close(c.changed)
	c.changed = make(chan struct{})
}

func (c *catalogs) RoundTrip(r *http.Request) (*http.Response, error) {
	q := r.URL.Query()
	c.mu.Lock()
	changed, waits := c.changed, q.Get("index") == fmt.Sprint(c.index)
	c.mu.Unlock()
	if wait, err := time.ParseDuration(q.Get("wait")); waits && err == nil {
		select {
		case <-r.Context().Done():
			return nil, r.Context().Err()
		case <-time.After(wait):
		case <-changed:
		}
	}
	if trace := httptrace.ContextClientTrace(r.Context()); trace != nil {
		trace.GotFirstResponseByte()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	dc := q.Get("dc")
	if c.fails != nil && c.fails(dc, r.URL.Path) {
		return &http.Response{StatusCode: 500, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("No path to datacenter")), Request: r}, nil
	}
	body, filtered := c.says(dc, r.URL.Path)
	h := http.Header{"X-Consul-Index": {fmt.Sprint(c.index)}, "X-Consul-Knownleader": {"true"}, "X-Consul-Lastcontact": {fmt.Sprint(c.lag.Milliseconds())}}
	if filtered {
		h.Set("X-Consul-Results-Filtered-By-ACLs", "true")
	}
	return &http.Response{StatusCode: 200, Header: h, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
}

// says is an answer, and whether the token does not read all of it. Called with mu held.
func (c *catalogs) says(dc, path string) (body string, filtered bool) {
	prefix := ""
	if dc != "" {
		prefix = dc + "/"
	}
	instance := func(dc, name, state string) string {
		return fmt.Sprintf(`[{"Node":{"Node":"n","Address":"10.0.0.1","Datacenter":%q},"Service":{"ID":"1","Service":%q,"Port":80},"Checks":[{"Node":"n","CheckID":"c","Status":%q}]}]`, dc, name, state)
	}
	name, instances := strings.CutPrefix(path, "/v1/health/service/")
	switch state, there := c.services[prefix+name]; {
	case path == "/v1/catalog/services":
		var names []string
		for group := range c.services {
			if name, ok := strings.CutPrefix(group, prefix); !ok || strings.Contains(name, "/") {
				continue
			} else if c.hidden[group] {
				filtered = true
			} else {
				names = append(names, fmt.Sprintf("%q:[]", name))
			}
		}
		return "{" + strings.Join(names, ",") + "}", filtered
	case instances && c.nulls:
		return `[null]`, false
	case instances && name == "consul":
		return instance("dc1", "consul", api.HealthPassing), false
	case instances && c.hidden[prefix+name]:
		return `[]`, there
	case instances && there && name == "two":
		node := `{"Node":{"Node":"n%d","Address":"10.0.0.%d","Datacenter":"dc1"},"Service":{"ID":"%d","Service":"two","Port":%d}}`
		return fmt.Sprintf("["+node+","+node+"]", 1, 1, 1, c.ports[0], 2, 2, 2, c.ports[1]), false
	case instances && there:
		return instance("dc1", name, state), false
	case strings.HasPrefix(path, "/v1/catalog/node/"):
		return `null`, false
	}
	return `[]`, false
}

// shelf keeps what lastgood writes.
type shelf struct {
	mu  sync.Mutex
	all map[string][]byte // guarded by mu
}

func (s *shelf) LoadLastGood(context.Context, string) (map[string][]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.all), nil
}

func (s *shelf) SaveLastGood(_ context.Context, _ string, contents map[string][]byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.Copy(s.all, contents)
	maps.DeleteFunc(s.all, func(_ string, b []byte) bool { return b == nil })
	return nil
}

// following is a source that runs, with what was kept before it, and what it has said.
type following struct {
	t   *testing.T
	end func()

	mu sync.Mutex
	// the following are guarded by mu
	merged  *feed.Merger[registry.Key, registry.Instances]
	batches int
}

// look runs a source of these catalogs until its end is called, in a bubble of synctest.
func (c *catalogs) look(t *testing.T, o Options, cfg lastgood.Config[registry.Instances]) *following {
	t.Helper()
	return lookOver(t, c, o, cfg)
}

func orDiscard(l hclog.Logger) hclog.Logger {
	if l == nil {
		return hclog.NewNullLogger()
	}
	return l
}

// stands is how the source stands.
func (f *following) stands() feed.SourceStatus {
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.merged.Sources()[0]
}

// said counts the batches.
func (f *following) said() int {
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.batches
}

// problems are all that there are.
func (f *following) problems() []feed.Problem {
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.merged.Problems(nil)
}

// state is the health of a host's one endpoint; empty: there is no such host.
func (f *following) state(host string) string {
	f.t.Helper()
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	items := f.merged.Items(registry.Key{Host: host, Namespace: "default"})
	if len(items) == 0 {
		return ""
	}
	return map[registry.Health]string{registry.Healthy: "healthy", registry.Unhealthy: "unhealthy"}[items[0].Endpoints.Items[0].Health]
}

// is compares how the source stands: with the one error, in how many groups there is old content, and since when.
func (f *following) is(what, problem string, stale int, since time.Time) feed.SourceStatus {
	f.t.Helper()
	s := f.stands()
	if s.Error != problem && (problem == "" || !strings.Contains(s.Error, problem)) || s.Stale != stale || !s.StaleSince().Equal(since) {
		f.t.Errorf("%s: it stands with %q, %d groups of %v; want %q, %d of %v; problems: %v", what, s.Error, s.Stale, s.StaleSince(), problem, stale, since, f.problems())
	}
	return s
}

// tells says how many problems have a text.
func (f *following) tells(text string) (n int) {
	for _, p := range f.problems() {
		if strings.Contains(p.String(), text) {
			n++
		}
	}
	return n
}

// What is too old is gone alone: one service that the token does not read any more, one that Consul answers with errors, and a
// datacenter that is out of reach take nothing from what is fresh.
func TestTooOldAlone(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		breaks func(*catalogs)
		mends  func(*catalogs)
		gone   string
		text   string
	}{
		"a service is hidden": {
			func(c *catalogs) { c.hidden["pay"] = true }, func(c *catalogs) { delete(c.hidden, "pay") },
			"pay.service.consul", "Consul service pay: Consul at http://consul.test:8500: the token reads nothing any more of what it read before: give it node:read",
		},
		"a service is answered with errors": {
			func(c *catalogs) {
				c.fails = func(dc, path string) bool { return dc == "" && path == "/v1/health/service/pay" }
			}, func(c *catalogs) { c.fails = nil },
			"pay.service.consul", "Consul service pay: Consul at http://consul.test:8500 answers 500",
		},
		"a datacenter is out of reach": {
			func(c *catalogs) { c.fails = func(dc, _ string) bool { return dc == "dc2" } }, func(c *catalogs) { c.fails = nil },
			"web.service.dc2.consul", "Consul, datacenter dc2: Consul at http://consul.test:8500 answers 500",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCatalogs("web", "pay", "dc2/web")
				f := c.look(t, Options{Datacenters: []string{"dc1", "dc2"}}, lastgood.Config[registry.Instances]{MaxAge: time.Hour, Drop: true})
				defer f.end()
				time.Sleep(3 * time.Hour)
				f.is("in touch", "", 0, time.Time{})
				c.change(func() { tc.breaks(c) })
				began := time.Now()
				time.Sleep(time.Minute)
				if f.is("away", "", 1, began); f.tells(tc.text) != 1 {
					t.Errorf("problems: %v", f.problems())
				}
				time.Sleep(58 * time.Minute)
				if f.state(tc.gone) != "healthy" {
					t.Error("it is gone before its time")
				}
				time.Sleep(2 * time.Minute)
				if f.state(tc.gone) != "" || f.tells("older than the setting maxAge") != 1 {
					t.Errorf("it is not gone: %v", f.problems())
				}
				for _, host := range []string{"web.service.consul", "pay.service.consul", "web.service.dc2.consul"} {
					if host != tc.gone && f.state(host) != "healthy" {
						t.Errorf("%s is gone too", host)
					}
				}
				c.change(func() { c.services["web"] = api.HealthCritical })
				time.Sleep(time.Second)
				if f.state("web.service.consul") != "unhealthy" {
					t.Error("the rest follows Consul no more")
				}
				c.change(func() { tc.mends(c) })
				time.Sleep(time.Minute)
				if f.is("back", "", 0, time.Time{}); f.state(tc.gone) != "healthy" || len(f.problems()) != 0 {
					t.Errorf("it is not back: %v", f.problems())
				}
			})
		})
	}
}

// A start while one datacenter, or one service, is away follows all others at once; what was kept of that one stands in, with
// its age, and is dropped when that is too much. Where nothing was kept, the first state waits.
func TestStartPartlyAway(t *testing.T) {
	t.Parallel()
	away := map[string]func(dc, path string) bool{
		"a datacenter": func(dc, _ string) bool { return dc == "dc2" },
		"a service":    func(dc, path string) bool { return dc == "dc2" && path == "/v1/health/service/web" },
	}
	for name, fails := range away {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c, o := newCatalogs("web", "dc2/web"), Options{Datacenters: []string{"dc1", "dc2"}}
				cfg := lastgood.Config[registry.Instances]{Store: &shelf{all: map[string][]byte{}}, MaxAge: time.Hour, Drop: true}
				f := c.look(t, o, cfg)
				time.Sleep(10 * time.Minute)
				f.is("before", "", 0, time.Time{})
				f.end()
				c.change(func() { c.fails, c.services["web"], c.services["late"] = fails, api.HealthCritical, api.HealthPassing })
				stopped := time.Now()
				time.Sleep(10 * time.Minute)
				for range 2 { // the second start has what the first one kept of it
					f = c.look(t, o, cfg)
					time.Sleep(5 * time.Second)
					got := f.stands()
					if f.state("web.service.consul") != "unhealthy" || f.state("late.service.consul") != "healthy" || f.state("web.service.dc2.consul") != "healthy" {
						t.Errorf("%q, %q, %q", f.state("web.service.consul"), f.state("late.service.consul"), f.state("web.service.dc2.consul"))
					}
					if got.Error != "" || got.Stale != 1 || stopped.Sub(got.StaleSince()) > time.Minute || got.StaleSince().After(stopped) {
						t.Errorf("it stands with %+v, stopped at %v", got, stopped)
					}
					time.Sleep(10 * time.Minute)
					f.end()
				}
				f = c.look(t, o, cfg)
				time.Sleep(time.Hour)
				if f.state("web.service.dc2.consul") != "" || f.state("web.service.consul") != "unhealthy" {
					t.Error("what is too old is there, or what is not is gone")
				}
				c.change(func() { c.fails = nil })
				time.Sleep(time.Minute)
				if f.is("back", "", 0, time.Time{}); f.state("web.service.dc2.consul") != "healthy" {
					t.Error("it is not back")
				}
				f.end()

				c.change(func() { c.fails = fails })
				cfg.Store = &shelf{all: map[string][]byte{}}
				f = c.look(t, o, cfg)
				time.Sleep(time.Minute)
				if got := f.stands(); got.Synced || !strings.Contains(got.Error, "answers 500") {
					t.Errorf("nothing was kept: %+v", got)
				}
				c.change(func() { c.fails = nil })
				time.Sleep(time.Minute)
				f.is("there at last", "", 0, time.Time{})
				f.end()
			})
		})
	}
}

// A start while all of Consul is away says nothing of it: what was kept stands in for all, of when it was right.
func TestStartAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, o := newCatalogs("web", "dc2/web"), Options{Datacenters: []string{"dc1", "dc2"}}
		cfg := lastgood.Config[registry.Instances]{Store: &shelf{all: map[string][]byte{}}}
		f := c.look(t, o, cfg)
		time.Sleep(10 * time.Minute)
		f.end()
		stopped := time.Now()
		c.change(func() { c.fails = func(dc, path string) bool { return path != "/v1/health/service/consul" } })
		time.Sleep(time.Hour)
		f = c.look(t, o, cfg)
		time.Sleep(time.Minute)
		got := f.stands()
		if !got.Synced || !strings.Contains(got.Error, "stands in") || stopped.Sub(got.StaleSince()) > time.Minute || len(f.problems()) != 1 {
			t.Errorf("it stands with %+v, stopped at %v; %v", got, stopped, f.problems())
		}
		c.change(func() { c.fails = nil })
		time.Sleep(time.Minute)
		f.is("back", "", 0, time.Time{})
		f.end()
	})
}

// A token that does not read all services is told of; what it does not read any more stays, and what is gone from Consul is gone.
func TestNarrowToken(t *testing.T) {
	t.Parallel()
	const warning, hidden = "does not read all services of Consul", "the token reads nothing any more of what it read before"
	synctest.Test(t, func(t *testing.T) {
		c, cfg := newCatalogs("web", "pay", "secret"), lastgood.Config[registry.Instances]{Store: &shelf{all: map[string][]byte{}}}
		c.hidden["secret"] = true
		f := c.look(t, Options{}, cfg)
		time.Sleep(time.Minute)
		if f.is("at the start", "", 0, time.Time{}); f.tells(warning) != 1 {
			t.Errorf("nobody says that there is more: %v", f.problems())
		}
		c.change(func() { c.hidden["pay"] = true })
		at := time.Now()
		time.Sleep(time.Minute)
		if f.is("narrower", "", 1, at); f.state("pay.service.consul") != "healthy" || f.tells(hidden) != 1 || f.tells(warning) != 1 {
			t.Errorf("pay is %q: %v", f.state("pay.service.consul"), f.problems())
		}
		f.end()
		c.change(func() { c.hidden["web"] = true }) // it reads nothing any more
		f = c.look(t, Options{}, cfg)
		time.Sleep(time.Minute)
		if f.state("pay.service.consul") != "healthy" || f.state("web.service.consul") != "healthy" || f.tells(hidden) != 2 {
			t.Errorf("after a start: %v", f.problems())
		}
		c.change(func() { delete(c.hidden, "web"); delete(c.services, "pay") })
		time.Sleep(time.Minute)
		if f.is("it is gone", "", 0, time.Time{}); f.state("pay.service.consul") != "" || f.state("web.service.consul") != "healthy" || f.tells(hidden) != 0 {
			t.Errorf("pay is %q: %v", f.state("pay.service.consul"), f.problems())
		}
		c.change(func() { delete(c.hidden, "secret") })
		time.Sleep(time.Minute)
		if f.state("secret.service.consul") != "healthy" || len(f.problems()) != 0 {
			t.Errorf("it reads all: %v", f.problems())
		}
		f.end()
		c.change(func() { c.hidden["secret"] = true })
		for o, want := range map[*Options]int{{Services: []string{"web"}}: 0, {Services: []string{"web", "secret"}}: 1, {Services: []string{"*"}}: 1} {
			f = c.look(t, *o, lastgood.Config[registry.Instances]{})
			time.Sleep(time.Minute)
			if f.tells(warning) != want {
				t.Errorf("services %v: %v", o.Services, f.problems())
			}
			f.end()
		}
		f = c.look(t, Options{Emptied: emptiedBelieve}, cfg)
		time.Sleep(time.Minute)
		if f.is("believed", "", 0, time.Time{}); f.state("secret.service.consul") != "" {
			t.Error("what the settings say to believe is not believed")
		}
		f.end()
	})
}

// How old answers are is told with the changes that they bring, also when it is another than before.
func TestLag(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCatalogs("web")
		f := c.look(t, Options{Reads: readsStale}, lastgood.Config[registry.Instances]{})
		defer f.end()
		states := []string{api.HealthPassing, api.HealthCritical}
		for i, lag := range []time.Duration{0, 5 * time.Minute, 5*time.Minute + 20*time.Millisecond, 2 * time.Second, 0} {
			c.change(func() { c.lag, c.services["web"] = lag, states[i%2] })
			time.Sleep(time.Minute)
			if got := f.stands(); (got.Lag-lag).Abs() >= lagStep || got.Error != "" {
				t.Errorf("the lag of %v is told to be %v", lag, got.Lag)
			}
		}
	})
}

// An outage of everything, however many services there are, is told when it begins and when it is over, and so is one of a
// datacenter; a trouble that comes and goes is a few lines of the log a minute.
func TestNoFlood(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		fails   func(dc, path string) bool
		batches int
	}{
		"all":          {func(string, string) bool { return true }, 4}, // each datacenter may be a moment later than the other
		"a datacenter": {func(dc, _ string) bool { return dc == "dc2" }, 2},
		"every other answer": {func() func(string, string) bool {
			n := 0
			return func(string, string) bool { n++; return n%7 < 6 }
		}(), 300},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var names []string
				for i := range 70 {
					names = append(names, fmt.Sprintf("s%d", i), fmt.Sprintf("dc2/s%d", i))
				}
				c, log := newCatalogs(names...), &testlog.Text{}
				f := c.look(t, Options{Datacenters: []string{"dc1", "dc2"}, Connections: 200}, lastgood.Config[registry.Instances]{Log: hclog.New(&hclog.LoggerOptions{Output: log, Level: hclog.Info})})
				defer f.end()
				time.Sleep(time.Minute)
				f.is("before", "", 0, time.Time{})
				log.Take()
				batches := f.said()
				c.change(func() { c.fails = tc.fails })
				time.Sleep(10 * time.Minute)
				c.change(func() { c.fails = nil })
				time.Sleep(time.Minute)
				f.is("after", "", 0, time.Time{})
				if n := f.said() - batches; n > tc.batches {
					t.Errorf("%d batches, want at most %d", n, tc.batches)
				}
				if len(f.problems()) != 0 {
					t.Errorf("problems: %v", f.problems())
				}
				said := slices.DeleteFunc(strings.Split(log.Take(), "\n"), func(l string) bool { return !strings.Contains(l, "touch with") })
				if most := map[bool]int{true: 2, false: 4 * 11}[tc.batches < 10]; len(said) > most || len(said) < 2 {
					t.Errorf("%d lines, want at most %d:\n%s", len(said), most, strings.Join(said, "\n"))
				}
			})
		})
	}
}

// The port that a service had while its instances move to another one is known over a start too.
func TestPortKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, cfg := newCatalogs("two"), lastgood.Config[registry.Instances]{Store: &shelf{all: map[string][]byte{}}}
		port := func(f *following) uint32 {
			time.Sleep(10 * time.Second)
			f.state("two.service.consul")
			f.mu.Lock()
			defer f.mu.Unlock()
			return f.merged.Items(registry.Key{Host: "two.service.consul", Namespace: "default"})[0].Service.Ports[0].Number
		}
		c.ports = [2]int{8080, 8080}
		f := c.look(t, Options{}, cfg)
		if got := port(f); got != 8080 {
			t.Errorf("at first it is reached at %d", got)
		}
		for _, start := range []bool{false, true} {
			if start {
				f.end()
				f = c.look(t, Options{}, cfg)
			}
			c.change(func() { c.ports[0] = 9090 })
			if got := port(f); got != 8080 {
				t.Errorf("after a start (%v): half of it has moved, and it is reached at %d", start, got)
			}
		}
		c.change(func() { c.ports[1] = 9090 })
		if got := port(f); got != 9090 {
			t.Errorf("all of it has moved, and it is reached at %d", got)
		}
		f.end()
	})
}

// A token that reads nothing, put in the place of one that was refused: Consul says nothing new, and does not wake who waits with
// it. That is told, and what changes is seen as soon as the right token is back.
func TestBlindToken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCatalogs("web", "api")
		f := c.look(t, Options{}, lastgood.Config[registry.Instances]{})
		defer f.end()
		time.Sleep(time.Second)
		still := func(edit func()) { // nobody is woken
			c.mu.Lock()
			defer c.mu.Unlock()
			edit()
		}
		c.change(func() {
			c.index--
			c.fails = func(string, string) bool { return true }
		})
		time.Sleep(time.Minute)
		still(func() { c.fails, c.hidden["web"], c.hidden["api"] = nil, true, true })
		time.Sleep(time.Minute)
		if s := f.stands(); !strings.Contains(s.Error, "the token reads nothing any more") {
			t.Errorf("it stands with %q", s.Error)
		}
		still(func() {
			c.services["web"] = api.HealthCritical
			c.index++
		})
		time.Sleep(time.Minute)
		still(func() { clear(c.hidden) })
		time.Sleep(time.Minute)
		if got := f.state("web.service.consul"); got != "unhealthy" {
			t.Errorf("with the right token again web is %s", got)
		}
		f.is("in the end", "", 0, time.Time{})
	})
}

// A token that reads more, put in the place of one that did not read everything, is used within seconds though nothing changes.
func TestBetterToken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCatalogs("web", "api")
		c.hidden["api"] = true
		f := c.look(t, Options{}, lastgood.Config[registry.Instances]{})
		defer f.end()
		time.Sleep(time.Minute)
		if got := f.state("api.service.consul"); got != "" {
			t.Errorf("what is hidden is %s", got)
		}
		c.mu.Lock()
		clear(c.hidden)
		c.mu.Unlock()
		time.Sleep(2 * filteredWait)
		if got := f.state("api.service.consul"); got != "healthy" {
			t.Errorf("with a token that reads it api is %q", got)
		}
	})
}

// An answer about a service with nothing in it that is an instance takes nothing away.
func TestNoInstance(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCatalogs("web", "api")
		f := c.look(t, Options{}, lastgood.Config[registry.Instances]{})
		defer f.end()
		time.Sleep(time.Second)
		c.change(func() { c.nulls = true })
		time.Sleep(time.Minute)
		if got := f.state("web.service.consul"); got != "healthy" || f.tells("instances without node or service") == 0 {
			t.Errorf("web is %q, and problems are %v", got, f.problems())
		}
	})
}

// A Consul that comes back with nothing is asked for no checks any more, where those were asked for because there were many
// services: that they could not be asked for is over all the same.
func TestFewerAfterOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		names := make([]string, 400)
		for i := range names {
			names[i] = fmt.Sprintf("s%d", i)
		}
		c := newCatalogs(names...)
		f := c.look(t, Options{}, lastgood.Config[registry.Instances]{})
		defer f.end()
		time.Sleep(time.Minute)
		c.change(func() { c.fails = func(string, string) bool { return true } })
		time.Sleep(time.Minute)
		c.change(func() {
			c.fails = nil
			clear(c.services)
		})
		time.Sleep(time.Minute)
		if n := f.tells("came back without the services that it had"); n != 1 {
			t.Errorf("it is told %d times what is lost: %v", n, f.problems())
		}
		if n := f.tells("the checks"); n > 0 {
			t.Errorf("what is over is told: %v", f.problems())
		}
	})
}

// What was kept of a datacenter that is away, and this release cannot read, is told, and kept on for another one until that
// datacenter answers.
func TestKeptOfAnotherShape(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const group, other = "group:dc2/web", `{"items":{"of":"another release"}}`
		c := newCatalogs("web", "dc2/web", "dc2/pay")
		store := &shelf{all: map[string][]byte{}}
		o := Options{Datacenters: []string{"dc1", "dc2"}}
		f := c.look(t, o, lastgood.Config[registry.Instances]{Store: store})
		time.Sleep(time.Minute)
		f.end()
		store.all[group] = []byte(other)
		c.change(func() { c.fails = func(dc, _ string) bool { return dc == "dc2" } })
		f = c.look(t, o, lastgood.Config[registry.Instances]{Store: store})
		defer f.end()
		time.Sleep(10 * time.Minute)
		if f.state("pay.service.dc2.consul") != "healthy" {
			t.Error("pay does not stand in")
		}
		kept := func() string {
			store.mu.Lock()
			defer store.mu.Unlock()
			return string(store.all[group])
		}
		if kept() != other || f.tells("cannot be used") != 1 {
			t.Errorf("while dc2 is away %q is kept, and it is told: %v", kept(), f.problems())
		}
		c.change(func() { c.fails = nil })
		time.Sleep(time.Minute)
		if f.state("web.service.dc2.consul") != "healthy" || kept() == other || f.tells("cannot be used") != 0 {
			t.Errorf("when it answers web is %q, %q is kept, and it is told: %v", f.state("web.service.dc2.consul"), kept(), f.problems())
		}
	})
}
