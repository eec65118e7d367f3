package consul

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/consul/api"
)

// fakeConsul answers the queries of a source without a network, for synctest. It has several
// datacenters, of which dc1 is the agent's own, and counts indexes as Consul does: an instance that
// is registered again under another name raises the index of the new service alone. A query takes a
// millisecond.
type fakeConsul struct {
	mu sync.Mutex
	// The rest is guarded by mu; see change.

	dcs     map[string]*fakeDC
	hidden  map[string]bool // services that the token cannot read, such as "dc1/web"
	hung    bool            // queries get no answer
	fail    func(dc, path string) *http.Response
	woken   chan struct{} // closed by the next change
	cuts    int           // blocking queries end with an error when it changes
	queries []url.URL
	blocked int // blocking queries that are waiting
}

func newFakeConsul(dcs ...string) *fakeConsul {
	f := &fakeConsul{dcs: map[string]*fakeDC{}, hidden: map[string]bool{}, woken: make(chan struct{})}
	for _, dc := range dcs {
		f.dcs[dc] = newFakeDC(100)
	}
	return f
}

// change changes the state and wakes all blocking queries.
func (f *fakeConsul) change(c func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c()
	close(f.woken)
	f.woken = make(chan struct{})
}

// failing makes all queries fail with that status and text, or succeed again if the status is zero.
func (f *fakeConsul) failing(status int, text string) {
	f.failingIf(status, text, func(string, string) bool { return true })
}

// failingIf is failing for the queries that is selects.
func (f *fakeConsul) failingIf(status int, text string, is func(dc, path string) bool) {
	f.change(func() {
		f.cuts++
		f.fail = func(dc, path string) *http.Response {
			if status == 0 || !is(dc, path) {
				return nil
			}
			return fail(status, text)
		}
	})
}

// received returns the number of queries to a path since the last call.
func (f *fakeConsul) received(path string) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, u := range f.queries {
		if u.Path == path {
			n++
		}
	}
	f.queries = nil
	return n
}

// fakeDC is one datacenter.
type fakeDC struct {
	index     uint64 // of the last change
	catalog   uint64 // of the last registration
	instances map[int]*fakeInstance
	services  map[string]uint64 // index of each
	removed   uint64            // index of the last service that was removed
}

type fakeInstance struct {
	service, status string
	address         int // the last byte
}

func newFakeDC(index uint64) *fakeDC {
	return &fakeDC{index: index, catalog: index, removed: index, instances: map[int]*fakeInstance{},
		services: map[string]uint64{}}
}

// register registers instance id as one of a service. It leaves its former service.
func (d *fakeDC) register(id int, service string) {
	d.index++
	d.catalog, d.services[service] = d.index, d.index
	d.instances[id] = &fakeInstance{service: service, status: api.HealthPassing, address: id*20 + int(d.index%20)}
}

func (d *fakeDC) deregister(id int) {
	d.index++
	d.catalog = d.index
	name := d.instances[id].service
	delete(d.instances, id)
	if len(d.of(name)) > 0 {
		d.services[name] = d.index
	} else {
		delete(d.services, name)
		d.removed = d.index
	}
}

func (d *fakeDC) check(id int, status string) {
	d.index++
	d.instances[id].status, d.services[d.instances[id].service] = status, d.index
}

// of returns the instances of a service.
func (d *fakeDC) of(name string) (ids []int) {
	for _, id := range slices.Sorted(maps.Keys(d.instances)) {
		if d.instances[id].service == name {
			ids = append(ids, id)
		}
	}
	return ids
}

// is returns the instances of a service as receiver.host does.
func (d *fakeDC) is(name string) string {
	var out []string
	for _, id := range d.of(name) {
		out = append(out, fmt.Sprintf("10.0.1.%d %s", d.instances[id].address, d.instances[id].status))
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

func (f *fakeConsul) RoundTrip(r *http.Request) (*http.Response, error) {
	q := r.URL.Query()
	index, err := strconv.ParseUint(q.Get("index"), 10, 64)
	blocks := err == nil
	var timeout <-chan time.Time
	if wait, err := time.ParseDuration(q.Get("wait")); err == nil && blocks {
		timeout = time.After(wait)
	}
	time.Sleep(time.Millisecond)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.queries = append(f.queries, *r.URL)
	for cuts := f.cuts; ; {
		if f.cuts != cuts {
			return nil, errors.New("connection reset by peer")
		}
		if !f.hung {
			resp, now := f.answer(q.Get("dc"), r.URL.Path)
			if resp.Request = r; !blocks || now == 0 || now > index {
				return resp, nil
			}
		}
		woken := f.woken
		f.blocked++
		f.mu.Unlock()
		select {
		case <-woken:
		case <-timeout:
			blocks = false
		case <-r.Context().Done():
		}
		f.mu.Lock()
		f.blocked--
		if err := r.Context().Err(); err != nil {
			return nil, err
		}
	}
}

// answer returns the current answer and its index, which is zero for an error. The caller holds mu.
func (f *fakeConsul) answer(dc, path string) (*http.Response, uint64) {
	if f.fail != nil {
		if resp := f.fail(dc, path); resp != nil {
			return resp, 0
		}
	}
	if dc == "" {
		dc = "dc1"
	}
	d := f.dcs[dc]
	if path == "/v1/catalog/datacenters" {
		return respond(1, false, slices.Sorted(maps.Keys(f.dcs))), 1
	}
	if d == nil {
		return fail(500, "No path to datacenter"), 0
	}
	if path == "/v1/catalog/services" {
		names, filtered := map[string][]string{"consul": {}}, false
		for name := range d.services {
			if len(d.of(name)) == 0 { // all its instances have another name now
				continue
			}
			if filtered = filtered || f.hidden[dc+"/"+name]; !f.hidden[dc+"/"+name] {
				names[name] = []string{}
			}
		}
		return respond(d.catalog, filtered, names), d.catalog
	}
	name := strings.TrimPrefix(path, "/v1/health/service/")
	if name == "consul" {
		return respond(d.index, false, []api.ServiceEntry{{
			Node:    &api.Node{Node: "s", Address: "10.0.0.9", Datacenter: dc},
			Service: &api.AgentService{ID: "consul", Service: "consul", Port: 8300},
		}}), d.index
	}
	ids := d.of(name)
	filtered := f.hidden[dc+"/"+name] && len(ids) > 0
	if filtered {
		ids = nil
	}
	index := d.services[name]
	if index == 0 {
		index = d.removed
	}
	return respond(index, filtered, d.entries(dc, ids)), index
}

// entries returns the answer about instances of a service.
func (d *fakeDC) entries(dc string, ids []int) []api.ServiceEntry {
	out := []api.ServiceEntry{}
	for _, id := range ids {
		i := d.instances[id]
		s := &api.AgentService{
			ID: fmt.Sprint("i", id), Service: i.service, Address: fmt.Sprint("10.0.1.",
				i.address), Port: 80, CreateIndex: 1,
		}
		out = append(out, api.ServiceEntry{
			Node:    &api.Node{Node: fmt.Sprint("n", id%3), Address: "10.0.0.1", Datacenter: dc},
			Service: s, Checks: api.HealthChecks{{CheckID: "c", Status: i.status}},
		})
	}
	return out
}

func fail(status int, text string) *http.Response {
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(text))}
}

func respond(index uint64, filtered bool, body any) *http.Response {
	raw, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	h := http.Header{
		"X-Consul-Index": {fmt.Sprint(index)}, "X-Consul-Knownleader": {"true"}, "X-Consul-Lastcontact": {"0"},
	}
	if filtered {
		h.Set("X-Consul-Results-Filtered-By-ACLs", "true")
	}
	return &http.Response{StatusCode: http.StatusOK, Header: h, Body: io.NopCloser(strings.NewReader(string(raw)))}
}
