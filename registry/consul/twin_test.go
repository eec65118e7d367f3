package consul

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing/synctest"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/ashore-mesh/ashore/registry"
)

// twin is a Consul of some datacenters that counts as the real one does: what is registered and what fails raises the index of the
// service that it is about, and what takes another name that of its new one alone. A question and its answer take a millisecond each.
type twin struct {
	mu sync.Mutex
	// the following are guarded by mu
	dcs     map[string]*twinDC // the agent's own is the empty name
	stopped map[string]bool    // of the same
	hidden  map[string]bool    // "dc2/web": the token does not read it
	fails   func(dc, path string) bool
	woken   chan struct{} // closed by the next change
	cuts    int           // when it is another number, what waits ends with an error
}

func newTwin(dcs ...string) *twin {
	w := &twin{dcs: map[string]*twinDC{}, stopped: map[string]bool{}, hidden: map[string]bool{}, woken: make(chan struct{})}
	for _, dc := range dcs {
		w.dcs[dc] = newTwinDC(100)
	}
	return w
}

// change has f change what is there, and all that wait look again.
func (w *twin) change(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
	close(w.woken)
	w.woken = make(chan struct{})
}

// twinDC is one datacenter. The change that is about it holds the twin's mu.
type twinDC struct {
	index     uint64 // of the last change
	born      uint64 // of the first
	instances map[int]*twinInstance
	down      map[string]uint64 // nodes whose check is critical: since which index
	services  map[string]uint64 // index of each
	extinct   uint64            // of the last service that went
	catalogue uint64            // of all registrations
	checks    uint64
}

type twinInstance struct {
	service, status string
	address         int    // its last byte
	checked         uint64 // index of its check
}

func newTwinDC(index uint64) *twinDC {
	return &twinDC{index: index, born: index, extinct: index, catalogue: index, checks: index,
		instances: map[int]*twinInstance{}, down: map[string]uint64{}, services: map[string]uint64{}}
}

// twinNode is the name of the node that an instance is on.
func twinNode(id int) string { return fmt.Sprint("n", id%3) }

// register has an instance be one of a service, whatever it was one of before.
func (d *twinDC) register(id int, service string, address int) {
	d.index++
	d.catalogue, d.checks, d.services[service] = d.index, d.index, d.index
	d.instances[id] = &twinInstance{service, api.HealthPassing, address, d.index}
}

func (d *twinDC) deregister(id int) {
	d.index++
	d.catalogue, d.checks = d.index, d.index
	name := d.instances[id].service
	delete(d.instances, id)
	if d.names()[name] {
		d.services[name] = d.index
	} else {
		delete(d.services, name)
		d.extinct = d.index
	}
}

// check sets the state of the check of an instance.
func (d *twinDC) check(id int, status string) {
	d.index++
	d.checks = d.index
	i := d.instances[id]
	i.status, i.checked, d.services[i.service] = status, d.index, d.index
}

// checkNode sets whether the check of a node is critical.
func (d *twinDC) checkNode(node string, critical bool) {
	d.index++
	d.checks = d.index
	delete(d.down, node)
	if critical {
		d.down[node] = d.index
	}
	for id, i := range d.instances {
		if twinNode(id) == node {
			d.services[i.service] = d.index
		}
	}
}

func (d *twinDC) names() map[string]bool {
	out := map[string]bool{}
	for _, i := range d.instances {
		out[i.service] = true
	}
	return out
}

// of are the instances of a service.
func (d *twinDC) of(name string) (ids []int) {
	for _, id := range slices.Sorted(maps.Keys(d.instances)) {
		if d.instances[id].service == name {
			ids = append(ids, id)
		}
	}
	return ids
}

// is is what there is of a service, as following.all has it.
func (w *twin) is(dc, name string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []string
	d := w.dcs[dc]
	for _, id := range d.of(name) {
		health := "healthy"
		if d.instances[id].status != api.HealthPassing || d.down[twinNode(id)] > 0 {
			health = "unhealthy"
		}
		out = append(out, fmt.Sprintf("10.0.1.%d %s", d.instances[id].address, health))
	}
	slices.Sort(out)
	return strings.Join(out, ",")
}

// version is another one when anything has changed about a service.
func (w *twin) version(dc, name string) string {
	is := w.is(dc, name)
	w.mu.Lock()
	defer w.mu.Unlock()
	return fmt.Sprint(is, w.dcs[dc].services[name], w.dcs[dc].extinct)
}

// says is an answer, its index, and whether the token does not read all of it. Called with mu held.
func (w *twin) says(dc, path, filter string) (index uint64, filtered bool, body string) {
	d := w.dcs[dc]
	name, service := strings.CutPrefix(path, "/v1/health/service/")
	switch {
	case path == "/v1/catalog/services":
		list := map[string][]string{}
		for name := range d.names() {
			if filtered = filtered || w.hidden[dc+"/"+name]; !w.hidden[dc+"/"+name] {
				list[name] = []string{}
			}
		}
		return d.catalogue, filtered, marshal(list)
	case service && name == "consul":
		return d.born, false, `[{"Node":{"Node":"s","Address":"10.0.0.9","Datacenter":"dc1"},"Service":{"ID":"consul","Service":"consul","Port":8300}}]`
	case service:
		ids := d.of(name)
		if filtered = w.hidden[dc+"/"+name] && len(ids) > 0; filtered || filter == nothing {
			ids = nil
		}
		if index = d.services[name]; index == 0 {
			index = d.extinct
		}
		return index, filtered, marshal(d.entries(name, ids))
	case path == "/v1/health/state/critical":
		return d.checks, false, marshal(d.critical())
	case path == "/v1/health/state/warning":
		return d.checks, false, `[]`
	}
	return d.born, false, `null`
}

func marshal(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// entries are what Consul says of instances of a service.
func (d *twinDC) entries(name string, ids []int) []api.ServiceEntry {
	out := []api.ServiceEntry{}
	for _, id := range ids {
		i, node, alive := d.instances[id], twinNode(id), api.HealthPassing
		if d.down[node] > 0 {
			alive = api.HealthCritical
		}
		out = append(out, api.ServiceEntry{
			Node:    &api.Node{Node: node, Address: "10.0.0.1", Datacenter: "dc1"},
			Service: &api.AgentService{ID: fmt.Sprint("i", id), Service: name, Address: fmt.Sprint("10.0.1.", i.address), Port: 80, CreateIndex: 1},
			Checks:  api.HealthChecks{{Node: node, CheckID: fmt.Sprint("c", id), Status: i.status}, {Node: node, CheckID: "alive", Status: alive}},
		})
	}
	return out
}

// critical are the checks that are.
func (d *twinDC) critical() api.HealthChecks {
	out := api.HealthChecks{}
	for id, i := range d.instances {
		if i.status == api.HealthCritical {
			out = append(out, &api.HealthCheck{Node: twinNode(id), CheckID: fmt.Sprint("c", id), ServiceName: i.service, Status: i.status, ModifyIndex: i.checked})
		}
	}
	for node, index := range d.down {
		out = append(out, &api.HealthCheck{Node: node, CheckID: "alive", Status: api.HealthCritical, ModifyIndex: index})
	}
	return out
}

func (w *twin) RoundTrip(r *http.Request) (*http.Response, error) {
	q := r.URL.Query()
	least, _ := strconv.ParseUint(q.Get("index"), 10, 64) // none is zero
	var timeout <-chan time.Time
	if wait, err := time.ParseDuration(q.Get("wait")); err == nil && least > 0 {
		timeout = time.After(wait)
	}
	time.Sleep(time.Millisecond)
	w.mu.Lock()
	defer w.mu.Unlock()
	for cuts, waits := w.cuts, true; ; {
		if w.cuts != cuts {
			return nil, errors.New("connection reset by peer")
		}
		if dc := q.Get("dc"); w.stopped[dc] || w.fails != nil && w.fails(dc, r.URL.Path) {
			return resp(r, http.StatusInternalServerError, 0, false, "No cluster leader"), nil
		}
		if index, filtered, body := w.says(q.Get("dc"), r.URL.Path, q.Get("filter")); !waits || index > least {
			w.mu.Unlock()
			time.Sleep(time.Millisecond)
			if trace := httptrace.ContextClientTrace(r.Context()); trace != nil {
				trace.GotFirstResponseByte()
			}
			w.mu.Lock()
			return resp(r, http.StatusOK, index, filtered, body), nil
		}
		woken := w.woken
		w.mu.Unlock()
		select {
		case <-woken:
		case <-timeout:
			waits = false
		case <-r.Context().Done():
		}
		w.mu.Lock()
		if err := r.Context().Err(); err != nil {
			return nil, err
		}
	}
}

// all is what is said of a host: its endpoints with their health.
func (f *following) all(host string) string {
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []string
	for _, in := range f.merged.Items(registry.Key{Host: host, Namespace: "default"}) {
		for _, e := range in.Endpoints.Items {
			out = append(out, e.Address+" "+map[registry.Health]string{registry.Healthy: "healthy", registry.Unhealthy: "unhealthy"}[e.Health])
		}
	}
	slices.Sort(out)
	return strings.Join(out, ",")
}
