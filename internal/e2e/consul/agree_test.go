package consul

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/consul/api"

	"github.com/ashore-mesh/ashore/internal/testconsul"
)

// randomCatalog makes random changes to a catalog. It has few names, so that many changes are of
// the same instances.
type randomCatalog struct {
	catalog
	rand    *rand.Rand
	changed map[string]bool // nodes with a registration since the last comparison
}

// change makes one random change, and describes it. It returns an empty text if it made none.
func (w randomCatalog) change() string {
	n, i := w.rand.IntN(4), w.rand.IntN(12)
	node, id, name := fmt.Sprint("node", n), fmt.Sprint("id", i), fmt.Sprint("s", w.rand.IntN(12))
	reg := &api.CatalogRegistration{Node: node, Address: "10.9.9.9", SkipNodeUpdate: true}
	status := []string{api.HealthPassing, api.HealthWarning, api.HealthCritical}[w.rand.IntN(3)]
	var what string
	switch w.rand.IntN(12) {
	case 0, 1, 2, 3: // an instance with this ID is renamed
		reg.Service = &api.AgentService{ID: id, Service: name,
			Address: fmt.Sprintf("10.%d.%d.%d", n, i, 1+w.rand.IntN(250)), Port: 80}
		w.changed[node] = true
		what = fmt.Sprintf("%s of %s on %s", id, name, node)
	case 4, 5:
		services, _, err := w.c.Catalog().Node(node, nil)
		if err != nil {
			w.t.Fatal(err)
		}
		if services == nil || services.Services[id] == nil {
			return ""
		}
		reg.Check = &api.AgentCheck{Node: node, CheckID: "service:" + id, Name: "alive", Status: status, ServiceID: id}
		what = fmt.Sprintf("%s on %s is %s", id, node, status)
	case 6:
		reg.Check = &api.AgentCheck{Node: node, CheckID: "alive", Name: "alive", Status: status}
		what = fmt.Sprintf("%s is %s", node, status)
	case 7:
		what = node + " is in maintenance"
		reg.Check = &api.AgentCheck{Node: node, CheckID: api.NodeMaint, Name: "maintenance", Status: api.HealthCritical}
	case 8:
		w.deregister(&api.CatalogDeregistration{Node: node, CheckID: api.NodeMaint})
		return node + " is not in maintenance"
	default:
		if w.changed[node] {
			return "" // Consul does not report a rename to the former service if the instance is removed at once
		}
		gone := &api.CatalogDeregistration{Node: node, ServiceID: id}
		if w.rand.IntN(8) == 0 {
			gone.ServiceID = ""
		}
		w.deregister(gone)
		return fmt.Sprintf("%s on %s is gone", gone.ServiceID, node)
	}
	if _, err := w.c.Catalog().Register(reg, nil); err != nil {
		w.t.Fatal(err)
	}
	return what
}

func (w randomCatalog) deregister(what *api.CatalogDeregistration) {
	w.t.Helper()
	if _, err := w.c.Catalog().Deregister(what, nil); err != nil {
		w.t.Fatal(err)
	}
}

// endpoints returns the endpoints in Consul, from one request for each service.
func (w randomCatalog) endpoints() map[string][]string {
	out := map[string][]string{}
	o := &api.QueryOptions{RequireConsistent: true}
	for i := range 12 {
		name := fmt.Sprint("s", i)
		list, _, err := w.c.Health().Service(name, "", false, o)
		if err != nil {
			w.t.Fatal(err)
		}
		for _, e := range list {
			health := "healthy"
			switch e.Checks.AggregatedStatus() {
			case api.HealthCritical:
				health = "unhealthy"
			case api.HealthMaint:
				health = "draining"
			}
			host := name + ".service.consul"
			out[host] = append(out[host], fmt.Sprintf("%s:%d %s", e.Service.Address, e.Service.Port, health))
		}
	}
	return sorted(out)
}

// everything returns the endpoints of the same services in the view. The caller holds mu.
func (v *view) everything() map[string][]string {
	out := map[string][]string{}
	for i := range 12 {
		host := fmt.Sprintf("s%d.service.consul", i)
		if all := v.endpoints(host); all != nil {
			out[host] = all
		}
	}
	return sorted(out)
}

func sorted(all map[string][]string) map[string][]string {
	for _, list := range all {
		slices.Sort(list)
	}
	return all
}

// After random changes, a source has the same endpoints as Consul, with each protocol and each
// consistency mode.
func TestAgrees(t *testing.T) {
	t.Parallel()
	server := testconsul.Start(t, nil)
	client := testconsul.New(t, map[string]any{"server": false, "bootstrap_expect": 0, "node_name": "client",
		"retry_join": []string{server.LAN}, "use_streaming_backend": false})
	client.Start()
	seed := rand.Uint64()
	w := randomCatalog{newCatalog(t, server, ""), rand.New(rand.NewPCG(seed, 1)), map[string]bool{}}
	t.Logf("seed %d", seed)
	w.put("anchor-1", "10.0.0.1", 80, "passing")
	for i := range 12 { // so that R4 does not apply if all others are removed
		w.put(fmt.Sprintf("anchor%d-1", i), "10.0.0.1", 80, "passing")
	}
	views := map[string]*view{}
	for _, way := range ways() {
		for _, reads := range []string{"default", "stale"} {
			for where, a := range map[string]*testconsul.Agent{"server": server, "client": client} {
				o := way.options(a)
				o.Reads = reads
				views[fmt.Sprint(way.name, ", ", reads, ", by the ", where)] = follow(t, o)
			}
		}
	}
	for _, v := range views {
		v.has(t, "anchor.service.consul", "10.0.0.1:80 healthy")
	}
	var history []string
	for round := range 60 {
		clear(w.changed)
		for range 1 + w.rand.IntN(6) {
			if what := w.change(); what != "" {
				history = append(history, fmt.Sprintf("%d: %s", round, what))
			}
		}
		want := w.endpoints()
		for name, v := range views {
			if !v.comes(func() bool { return cmp.Equal(v.everything(), want) }) {
				t.Fatalf("%s: (-want +got)\n%s\nafter\n%s\n%s", name, cmp.Diff(want, v.now()), strings.Join(history, "\n"),
					v.state())
			}
		}
	}
}

// state returns the status of the source and its problems.
func (v *view) state() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return fmt.Sprintf("%+v %+v", v.merged.Status(), v.merged.Problems(describe))
}

// now is everything for callers that do not hold mu.
func (v *view) now() map[string][]string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.everything()
}
