package consul

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/lastgood"
	"github.com/ashore-mesh/ashore/internal/testlog"
	"github.com/ashore-mesh/ashore/registry"
)

// catalogue has the fake answer as a Consul with this index and an instance of each of these services, at port. A mesh has
// registered those that are called mesh-….
func (f *fake) catalogue(index, port int, names ...string) {
	var next chan struct{}
	f.say(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("index") == fmt.Sprint(index) {
			select {
			case <-next:
				f.mu.Lock()
				answer := f.answer
				f.mu.Unlock()
				answer(w, r)
			case <-r.Context().Done():
			}
			return
		}
		w.Header().Set("X-Consul-Index", fmt.Sprint(index))
		name, instances := strings.CutPrefix(r.URL.Path, "/v1/health/service/")
		switch {
		case r.URL.Path == "/v1/catalog/services":
			list := []string{`"consul":[]`}
			for _, n := range names {
				list = append(list, fmt.Sprintf("%q:[]", n))
			}
			fmt.Fprintf(w, "{%s}", strings.Join(list, ","))
		case instances && slices.Contains(names, name):
			meta := ""
			if strings.HasPrefix(name, "mesh-") {
				meta = `"ashore-exported-by":"other"`
			}
			fmt.Fprintf(w, `[{"Node":{"Node":"n","Address":"10.0.0.1","Datacenter":"dc1"},"Service":{"ID":"1","Service":%q,"Port":%d,"Meta":{%s}},"Checks":[]}]`, name, port, meta)
		case strings.HasPrefix(r.URL.Path, "/v1/catalog/node/"):
			fmt.Fprint(w, `null`)
		default:
			fmt.Fprint(w, `[]`)
		}
	}, &next)
}

// content follows what a source says: the port of each group's first service, and what is wrong with it and the groups.
type content struct {
	ports    map[string]int
	problems map[string][]feed.Problem
	away     map[string]time.Time
	within   map[string]string
	stands   feed.Standing
	standing int // how often that was told
	full     int
}

func newContent() *content {
	return &content{ports: map[string]int{}, problems: map[string][]feed.Problem{}, away: map[string]time.Time{}, within: map[string]string{}}
}

// text is all that is wrong.
func (c *content) text() string {
	lines := []string{c.stands.Error}
	for _, group := range slices.Sorted(maps.Keys(c.problems)) {
		for _, p := range c.problems[group] {
			lines = append(lines, p.Text)
		}
	}
	return strings.Trim(strings.Join(lines, "\n"), "\n")
}

func (c *content) take(b feed.Batch[registry.Instances]) {
	if b.Full {
		c.full++
		clear(c.ports)
		clear(c.problems)
		clear(c.away)
	}
	for _, u := range b.Updates {
		delete(c.ports, u.Group)
		delete(c.away, u.Group)
		c.problems[u.Group], c.within[u.Group] = u.Problems, u.Within
		if !u.Away.IsZero() {
			c.away[u.Group] = u.Away
		}
		if len(u.Items) > 0 {
			c.ports[u.Group] = int(u.Items[0].Service.Ports[0].Number)
		}
	}
	if b.Standing != nil {
		c.stands = *b.Standing
		c.standing++
	}
}

// until waits until the content is as ok wants it.
func (c *content) until(t *testing.T, out <-chan feed.Batch[registry.Instances], what string, ok func() bool) {
	t.Helper()
	for end := time.After(30 * time.Second); !ok(); {
		select {
		case b := <-out:
			c.take(b)
		case <-end:
			t.Fatalf("waited in vain: %s; it is %+v", what, c)
		}
	}
}

// A Consul that comes back with an older index and without services that it had has lost them: they stay, each until it is
// known again. What says otherwise is believed.
func TestLost(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		emptied string
		index   int
		names   []string
		lost    bool
		want    map[string]int
	}{
		"everything is gone":                    {"", 3, nil, true, map[string]int{"web": 80, "db": 80}},
		"others are there":                      {"", 3, []string{"other"}, true, map[string]int{"web": 80, "db": 80, "other": 81}},
		"what a mesh has registered came back":  {"", 3, []string{"mesh-a"}, true, map[string]int{"web": 80, "db": 80}},
		"one is there again before the others":  {"", 3, []string{"web"}, true, map[string]int{"web": 81, "db": 80}},
		"the index goes on: one was removed":    {"", 120, []string{"web"}, false, map[string]int{"web": 81}},
		"the index goes on: they were removed":  {"", 120, nil, false, map[string]int{}},
		"the settings say that it is so indeed": {"believe", 3, nil, false, map[string]int{}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			f.catalogue(100, 80, "web", "db", "mesh-a")
			c := newContent()
			out := run(t, Options{Address: f.URL, Emptied: tc.emptied})
			c.until(t, out, "both", func() bool { return c.full == 1 && len(c.ports) == 2 })
			f.catalogue(tc.index, 81, tc.names...)
			lost := tc.lost
			same := func() bool {
				return fmt.Sprint(c.ports) == fmt.Sprint(tc.want) && strings.Contains(c.text(), "came back without the services that it had") == lost
			}
			c.until(t, out, "what is believed", same)
			f.catalogue(tc.index+1, 82, append(slices.Clone(tc.names), "db")...)
			tc.want["db"], lost = 82, lost && !slices.Contains(tc.names, "web")
			for _, n := range tc.names {
				if !strings.HasPrefix(n, "mesh-") {
					tc.want[n] = 82
				}
			}
			c.until(t, out, "one that is registered again", same)
			f.catalogue(tc.index+2, 83, "web", "db")
			c.until(t, out, "both again", func() bool {
				return fmt.Sprint(c.ports) == fmt.Sprint(map[string]int{"web": 83, "db": 83}) && c.text() == ""
			})
			if c.full != 1 {
				t.Errorf("%d full batches", c.full)
			}
		})
	}
}

// A Consul that has nothing at all when it is asked for the first time, while something was kept of it, is doubted in the same
// way. One that has something is believed.
func TestRecall(t *testing.T) {
	t.Parallel()
	item := func(host string) []registry.Instances {
		return []registry.Instances{{Service: &registry.Service{Key: registry.Key{Host: host, Namespace: "default"}, Ports: []registry.Port{{Number: 79}}}, Endpoints: &registry.EndpointList{}}}
	}
	kept := []feed.Update[registry.Instances]{
		{Group: "web", Items: item("web.service.consul")}, {Group: "no", Items: item("no.service.consul")}, {Group: "dc2/web", Items: item("web.service.dc2.consul")},
	}
	tests := map[string]struct {
		emptied string
		names   []string
		want    map[string]int
		lost    bool
	}{
		"nothing":                           {"", nil, map[string]int{"web": 79}, true},
		"something":                         {"", []string{"other"}, map[string]int{"other": 80}, false},
		"nothing, and the settings say so":  {"believe", nil, map[string]int{}, false},
		"only what does not count is there": {"", []string{"no"}, map[string]int{"web": 79}, true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			f.catalogue(100, 80, tc.names...)
			s, err := New(Config{Name: "fake", Options: Options{Address: f.URL, Emptied: tc.emptied, Except: []string{"no"}}, Log: testlog.New(t)})
			if err != nil {
				t.Fatal(err)
			}
			s.Remember(kept)
			c := newContent()
			out := started(t, s)
			c.until(t, out, "what is believed", func() bool {
				return c.full == 1 && fmt.Sprint(c.ports) == fmt.Sprint(tc.want) && strings.Contains(c.text(), "came back without") == tc.lost
			})
			f.catalogue(101, 81, "web")
			c.until(t, out, "what is registered again", func() bool { return fmt.Sprint(c.ports) == fmt.Sprint(map[string]int{"web": 81}) && c.text() == "" })
		})
	}
}

// A Consul that has lost its data, and of which the first agent was there again before it was asked, is doubted too, whoever
// hears of it first.
func TestLostButOne(t *testing.T) {
	t.Parallel()
	for range 5 {
		synctest.Test(t, func(t *testing.T) {
			c := newCatalogs()
			for i := range 10 {
				c.services[fmt.Sprintf("s%d", i)] = api.HealthPassing
			}
			f := c.look(t, Options{}, lastgood.Config[registry.Instances]{})
			defer f.end()
			time.Sleep(time.Minute)
			c.change(func() { c.fails = func(_, _ string) bool { return true } })
			time.Sleep(5 * time.Second)
			c.change(func() {
				c.fails, c.index, c.services = nil, 3, map[string]string{"s0": api.HealthPassing}
			})
			time.Sleep(time.Minute)
			for i := range 10 {
				if got := f.state(fmt.Sprintf("s%d.service.consul", i)); got != "healthy" {
					t.Errorf("s%d is %q; problems %v", i, got, f.problems())
				}
			}
			if f.tells("came back without the services that it had: s1, s2, s3, s4, s5 and 4 more") != 1 {
				t.Errorf("problems: %v", f.problems())
			}
			c.change(func() { c.services["s1"] = api.HealthCritical })
			time.Sleep(time.Minute)
			c.change(func() { delete(c.services, "s0") })
			time.Sleep(time.Minute)
			if zero, one := f.state("s0.service.consul"), f.state("s1.service.consul"); zero != "" || one != "unhealthy" {
				t.Errorf("what is deregistered now is %q, and what came later %q", zero, one)
			}
		})
	}
}

// A Consul that comes back without anything is doubted, whatever the token hides besides, and whatever else it has by then; also
// at a start. What the token hides is not lost, and what is deregistered later is gone.
func TestLostBesideHidden(t *testing.T) {
	t.Parallel()
	for _, start := range []bool{false, true} {
		for _, others := range [][]string{{}, {"secret"}, {"secret", "new"}} {
			t.Run(fmt.Sprint(start, others), func(t *testing.T) {
				t.Parallel()
				for range 5 {
					synctest.Test(t, func(t *testing.T) { lostBeside(t, start, others) })
				}
			})
		}
	}
}

func lostBeside(t *testing.T, start bool, others []string) {
	const hidden = "the token reads nothing any more of what it read before"
	c, cfg := newCatalogs("web", "pay"), lastgood.Config[registry.Instances]{Store: &shelf{all: map[string][]byte{}}}
	c.hidden["secret"] = true
	for _, name := range others {
		if c.hidden[name] {
			c.services[name] = api.HealthPassing
		}
	}
	f := c.look(t, Options{}, cfg)
	time.Sleep(time.Minute)
	is := func(what, web, pay string, lost, hides int) {
		t.Helper()
		time.Sleep(time.Minute)
		if f.state("web.service.consul") != web || f.state("pay.service.consul") != pay || f.tells("came back without") != lost || f.tells(hidden) != hides {
			t.Errorf("%s web is %q and pay %q, want %q and %q; problems %v", what, f.state("web.service.consul"), f.state("pay.service.consul"), web, pay, f.problems())
		}
	}
	is("at first", "healthy", "healthy", 0, 0)
	if start {
		f.end()
	}
	c.change(func() { c.fails = func(_, _ string) bool { return true } })
	time.Sleep(30 * time.Second)
	c.change(func() {
		c.fails, c.index, c.services = nil, 3, map[string]string{}
		for _, name := range others {
			if c.services[name] = api.HealthPassing; start && !c.hidden[name] {
				delete(c.services, name) // what is there at a start is believed
			}
		}
	})
	if start {
		f = c.look(t, Options{}, cfg)
	}
	defer func() { f.end() }()
	is("emptied:", "healthy", "healthy", 1, 0)
	c.change(func() { c.services["web"] = api.HealthCritical })
	is("one is there again:", "unhealthy", "healthy", 1, 0)
	c.change(func() { c.services["pay"] = api.HealthPassing })
	is("both are there again:", "unhealthy", "healthy", 0, 0)
	c.change(func() { c.hidden["pay"] = true })
	is("one is hidden:", "unhealthy", "healthy", 0, 1)
	c.change(func() { c.index = 3 })
	is("it counts anew:", "unhealthy", "healthy", 0, 1)
	c.change(func() { delete(c.services, "pay") })
	is("what is hidden is deregistered:", "unhealthy", "", 0, 0)
}

// What was wrong with a service that Consul has lost is told no more.
func TestProblemOfLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCatalogs("web", "a.b")
		f := c.look(t, Options{}, lastgood.Config[registry.Instances]{})
		defer f.end()
		time.Sleep(time.Minute)
		if f.tells("no name of DNS") != 1 {
			t.Fatalf("problems: %v", f.problems())
		}
		c.change(func() { c.fails = func(_, _ string) bool { return true } })
		time.Sleep(10 * time.Second)
		c.change(func() { c.fails, c.index, c.services = nil, 3, map[string]string{} })
		time.Sleep(time.Hour)
		if f.tells("no name of DNS") != 0 || f.tells("came back without the services that it had: web;") != 1 {
			t.Errorf("there is no a.b any more: %v", f.problems())
		}
	})
}

// What the token hid before Consul lost its data is lost like the rest, and what Consul lost is so also when the token read
// nothing of the first answer.
func TestLostWhileHidden(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		hidden string
		fails  string
		first  map[string]string // what is there, while this fails
		then   map[string]string
		lost   string
	}{
		"hidden before":            {"pay", "/v1/catalog/services", map[string]string{}, map[string]string{}, "pay, web;"},
		"nothing is read at first": {"secret", "/v1/health/service/", map[string]string{"secret": api.HealthPassing}, map[string]string{"web": api.HealthPassing, "secret": api.HealthPassing}, "pay;"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for range 10 {
				synctest.Test(t, func(t *testing.T) {
					c := newCatalogs("web", "pay", "secret")
					f := c.look(t, Options{Except: []string{"secret"}}, lastgood.Config[registry.Instances]{})
					defer f.end()
					time.Sleep(time.Minute)
					c.change(func() { c.hidden[tc.hidden] = true })
					time.Sleep(time.Minute)
					c.change(func() { c.fails = func(_, _ string) bool { return true } })
					time.Sleep(30 * time.Second)
					c.change(func() {
						c.services, c.index = tc.first, 3
						c.fails = func(_, path string) bool { return strings.HasPrefix(path, tc.fails) }
					})
					time.Sleep(10 * time.Second)
					c.change(func() { c.services, c.fails = tc.then, nil })
					time.Sleep(time.Minute)
					if web, pay := f.state("web.service.consul"), f.state("pay.service.consul"); web != "healthy" || pay != "healthy" || f.tells("came back without the services that it had: "+tc.lost) != 1 {
						t.Errorf("web is %q and pay %q; problems %v", web, pay, f.problems())
					}
				})
			}
		})
	}
}

// What was lost ages by itself, also while its datacenter is away at a start; what is found again, or hidden, ages with its datacenter.
func TestLostAges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, o := newCatalogs("web", "dc2/web", "dc2/pay", "dc2/db"), Options{Datacenters: []string{"dc1", "dc2"}}
		cfg := lastgood.Config[registry.Instances]{Store: &shelf{all: map[string][]byte{}}, MaxAge: time.Hour, Drop: true}
		f := c.look(t, o, cfg)
		is := func(what string, want ...string) {
			t.Helper()
			for i, name := range []string{"web", "pay", "db"} {
				if got := f.state(name + ".service.dc2.consul"); got != want[i] {
					t.Errorf("%s: %s is %q, want %q; problems %v", what, name, got, want[i], f.problems())
				}
			}
		}
		dc2 := func(dc, _ string) bool { return dc == "dc2" }
		time.Sleep(time.Minute)
		c.change(func() {
			delete(c.services, "dc2/pay")
			delete(c.services, "dc2/db")
			c.index = 3
		})
		time.Sleep(40 * time.Minute)
		if is("lost", "healthy", "healthy", "healthy"); f.tells("came back without the services that it had: db, pay;") != 1 {
			t.Errorf("problems: %v", f.problems())
		}
		f.end()
		c.change(func() { c.fails = dc2 })
		f = c.look(t, o, cfg)
		time.Sleep(10 * time.Minute)
		if is("away at a start", "healthy", "healthy", "healthy"); f.tells("came back without the services that it had: db, pay;") != 1 {
			t.Errorf("problems: %v", f.problems())
		}
		time.Sleep(15 * time.Minute)
		is("away for long", "healthy", "", "")
		c.change(func() {
			c.fails, c.services["dc2/pay"], c.services["dc2/db"], c.hidden["dc2/db"] = nil, api.HealthPassing, api.HealthPassing, true
		})
		time.Sleep(time.Minute)
		if is("one is found, one is hidden", "healthy", "healthy", ""); f.tells("came back without") != 0 || f.tells("the token reads nothing any more") != 1 {
			t.Errorf("problems: %v", f.problems())
		}
		c.change(func() { delete(c.hidden, "dc2/db") })
		time.Sleep(time.Minute)
		is("both are read", "healthy", "healthy", "healthy")
		c.change(func() { c.fails = dc2 })
		time.Sleep(50 * time.Minute)
		is("away again", "healthy", "healthy", "healthy")
		time.Sleep(15 * time.Minute)
		is("away again for long", "", "", "")
		f.end()
	})
}
