package consul

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/testconsul"
	"github.com/ashore-mesh/ashore/internal/testlog"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/registry/consul"
)

// shop is the name of the exporter in these tests.
const shop = "shop"

// exporting is an exporter that runs, and what its mesh has. One goroutine uses it.
type exporting struct {
	*consul.Exporter
	t         *testing.T
	services  consul.Services
	endpoints consul.Endpoints
	kill      context.CancelFunc
	ended     chan struct{}
}

// export runs an exporter until it is stopped, withdrawn or t ends.
func export(t *testing.T, replica string, o consul.Options) *exporting {
	t.Helper()
	if o.Export.Owner == "" {
		o.Export.Owner = shop
	}
	e, err := consul.NewExporter(consul.ExporterConfig{Name: replica, Options: o, Replica: replica,
		Log: testlog.New(t)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	x := &exporting{Exporter: e, t: t, kill: cancel, ended: make(chan struct{})}
	go func() {
		defer close(x.ended)
		if err := e.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	t.Cleanup(x.stop)
	return x
}

// stop ends it as the end of the program does.
func (x *exporting) stop() { x.kill(); <-x.ended }

// has makes this all endpoints of a service of the mesh, "10.0.0.1", "10.0.0.2 unhealthy"; none:
// there is no such service.
func (x *exporting) has(host string, endpoints ...string) {
	k := registry.Key{Host: host, Namespace: "shop"}
	x.services, x.endpoints = x.services.Without(k), x.endpoints.Without(k)
	if len(endpoints) > 0 {
		l := &registry.EndpointList{}
		for _, ep := range endpoints {
			address, health, _ := strings.Cut(ep, " ")
			l.Items = append(l.Items, registry.Endpoint{Address: address, Labels: map[string]string{"version": "1"},
				Health: map[string]registry.Health{"unhealthy": registry.Unhealthy,
					"draining": registry.Draining}[health]})
		}
		s := &registry.Service{Key: k, Ports: []registry.Port{{Number: 80, Name: "http", Protocol: registry.HTTP,
			TargetPort: 8080}}}
		x.services, x.endpoints = x.services.With(k, s), x.endpoints.With(k, l)
	}
	x.Publish(x.services, x.endpoints)
}

// instances are those of a service in Consul, "10.0.0.1:8080 passing".
func (c catalog) instances(name string) []string {
	list, _, err := c.c.Health().Service(name, "", false, nil)
	if err != nil {
		return []string{err.Error()}
	}
	out := []string{}
	for _, e := range list {
		out = append(out, fmt.Sprintf("%s:%d %s", e.Service.Address, e.Service.Port, e.Checks.AggregatedStatus()))
	}
	slices.Sort(out)
	return out
}

// eventually waits until ok is true.
func eventually(t *testing.T, what func() string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(waitTime); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("timeout: %s", what())
		}
	}
}

// shows waits until Consul has these instances of a service.
func (c catalog) shows(t *testing.T, name string, want ...string) {
	t.Helper()
	eventually(t, func() string { return fmt.Sprintf("%s has %q, want %q", name, c.instances(name), want) },
		func() bool { return slices.Equal(c.instances(name), want) })
}

// wantProblem waits until a problem of the exporter has this text.
func (x *exporting) wantProblem(text string) {
	x.t.Helper()
	eventually(x.t, func() string { return fmt.Sprintf("a problem with %q: there are %v", text, x.Status().Problems) },
		func() bool {
			return slices.ContainsFunc(x.Status().Problems, func(p feed.Problem) bool {
				return strings.Contains(p.String(),
					text)
			})
		})
}

// well waits until there are no problems.
func (x *exporting) well() {
	x.t.Helper()
	eventually(x.t, func() string { return fmt.Sprintf("no problems: there are %v", x.Status().Problems) },
		func() bool { return len(x.Status().Problems) == 0 })
}

// Services of the mesh are found in Consul, by its DNS names and health, and follow what the mesh
// has. What others have registered stays as it is, and the mesh's own source reads nothing of what
// it exports.
func TestExport(t *testing.T) {
	t.Parallel()
	for _, w := range ways()[:2] {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			a := testconsul.Start(t, nil)
			c := newCatalog(t, a, "")
			c.put("db-1", "10.9.0.1", 5432, "passing")
			o := w.options(a)
			x := export(t, "one", o)
			x.has("web.example", "10.0.0.1", "10.0.0.2 unhealthy")
			x.has("db.example", "10.0.0.3") // another program has registered that name
			c.shows(t, "web", "10.0.0.1:8080 passing", "10.0.0.2:8080 critical")
			x.wantProblem(`its name there would be "db", which is already registered outside this mesh`)
			c.shows(t, "db", "10.9.0.1:5432 passing")

			list, _, err := c.c.Health().Service("web", "version=1", true, nil)
			if err != nil || len(list) != 1 {
				t.Fatalf("%+v, %v", list, err)
			}
			want := map[string]string{"ashore-exported-by": shop, "ashore-host": "web.example",
				"ashore-namespace": "shop", "ashore-protocol": "http", "ashore-port-http": "80:8080"}
			if got := list[0]; got.Node.Node != "ashore-shop-one" || got.Node.Meta["ashore-exported-by"] != shop ||
				!maps.Equal(got.Service.Meta, want) {
				t.Errorf("got %+v on %+v", got.Service, got.Node)
			}

			o.Export.Owner = shop
			reader, other := follow(t, o), w.options(a)
			other.Exported = []string{shop}
			neighbour := follow(t, other)
			neighbour.has(t, "web.service.consul", "10.0.0.1:8080 healthy", "10.0.0.2:8080 unhealthy")
			other.Export.Owner = "neighbour" // which has Consul itself leave out what is its own
			follow(t, other).has(t, "web.service.consul", "10.0.0.1:8080 healthy", "10.0.0.2:8080 unhealthy")
			reader.has(t, "db.service.consul", "10.9.0.1:5432 healthy")

			before := x.Status().Writes
			x.has("web.example", "10.0.0.1 draining", "10.0.0.2")
			c.shows(t, "web", "10.0.0.1:8080 critical", "10.0.0.2:8080 passing")
			x.has("web.example", "10.0.0.2", "10.0.0.4")
			c.shows(t, "web", "10.0.0.2:8080 passing", "10.0.0.4:8080 passing")
			neighbour.has(t, "web.service.consul", "10.0.0.2:8080 healthy", "10.0.0.4:8080 healthy")
			x.has("api.example", "10.0.0.5")
			c.shows(t, "api", "10.0.0.5:8080 passing")
			x.has("api.example")
			c.shows(t, "api")
			if n := x.Status().Writes - before; n > 4 {
				t.Errorf("4 changes led to %d transactions", n)
			}
			if reader.knows("web.service.consul") || reader.knows("api.service.consul") {
				t.Error("what is exported comes back")
			}

			c.remove("db-1")
			c.put("web-9", "10.9.0.2", 80, "passing")
			x.has("late.example", "10.0.0.6")
			c.shows(t, "late", "10.0.0.6:8080 passing")
			c.shows(t, "db", "10.0.0.3:8080 passing") // the names of others are read every 30 s
			c.shows(t, "web", "10.9.0.2:80 passing")

			x.Withdraw()
			<-x.ended
			for _, name := range []string{"db", "late"} {
				c.shows(t, name)
			}
			c.shows(t, "web", "10.9.0.2:80 passing")
			node, _, err := c.c.Catalog().Node("ashore-shop-one", nil)
			if err != nil || node != nil {
				t.Errorf("the node is there still: %+v, %v", node, err)
			}
		})
	}
}

// Each replica registers on a node of its own, so that nothing is missing for a moment when one of
// them stops. What it leaves is removed by another one when its session has ended.
func TestExportReplicas(t *testing.T) {
	t.Parallel()
	a := testconsul.Start(t, nil)
	c := newCatalog(t, a, "")
	o := ways()[0].options(a)
	o.Export.Lease = 10 * time.Second
	one, two := export(t, "one", o), export(t, "two", o)
	one.has("web.example", "10.0.0.1")
	two.has("web.example", "10.0.0.1")
	c.shows(t, "web", "10.0.0.1:8080 passing", "10.0.0.1:8080 passing")
	one.stop()
	c.shows(t, "web", "10.0.0.1:8080 critical", "10.0.0.1:8080 passing")
	three := export(t, "three", o) // which reads at its start what is there
	three.has("web.example", "10.0.0.1")
	c.shows(t, "web", "10.0.0.1:8080 passing", "10.0.0.1:8080 passing")
	if node, _, err := c.c.Catalog().Node("ashore-shop-one", nil); err != nil || node != nil {
		t.Errorf("the node of the stopped replica: %+v, %v", node, err)
	}
	two.Withdraw()
	<-two.ended
	c.shows(t, "web", "10.0.0.1:8080 passing")
	three.Withdraw()
	<-three.ended
	c.shows(t, "web")
}

// watches fails the test if a service has other instances than these before it is stopped.
func (c catalog) watches(t *testing.T, name string, want ...string) (stop func()) {
	done := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(5 * time.Millisecond):
				if got := c.instances(name); !slices.Equal(got, want) {
					t.Errorf("meanwhile %s has %q, want %q", name, got, want)
				}
			}
		}
	})
	return func() { close(done); running.Wait() }
}

// When the session is not renewed, Consul turns the entries critical. A replica that comes back
// finds them as they were.
func TestExportLeaseEnds(t *testing.T) {
	t.Parallel()
	a := testconsul.Start(t, nil)
	c := newCatalog(t, a, "")
	o := ways()[1].options(a)
	o.Export.Lease = 10 * time.Second
	one := export(t, "one", o)
	one.has("web.example", "10.0.0.1")
	c.shows(t, "web", "10.0.0.1:8080 passing")
	one.stop()
	c.shows(t, "web", "10.0.0.1:8080 passing")
	c.shows(t, "web", "10.0.0.1:8080 critical")
	two := export(t, "one", o)
	two.has("web.example", "10.0.0.1")
	c.shows(t, "web", "10.0.0.1:8080 passing")
	if n := two.Status().Writes; n != 0 {
		t.Errorf("the second run wrote %d times, and nothing had changed", n)
	}
	// The session goes at once, as after a restoration.
	var list []*api.SessionEntry
	var err error
	eventually(t, func() string { return fmt.Sprintf("a session: %+v, %v", list, err) }, func() bool {
		list, _, err = c.c.Session().Node("ashore-shop-one", nil)
		return err == nil && len(list) > 0
	})
	for _, s := range list {
		if _, err := c.c.Session().Destroy(s.ID, nil); err != nil {
			t.Fatal(err)
		}
	}
	c.shows(t, "web", "10.0.0.1:8080 critical")
	c.shows(t, "web", "10.0.0.1:8080 passing")
}

// While Consul is away nothing happens; what changed meanwhile is written when it is back, and what
// it has lost too.
func TestExportOutage(t *testing.T) {
	t.Parallel()
	a := testconsul.Start(t, nil)
	c := newCatalog(t, a, "")
	x := export(t, "one", ways()[0].options(a))
	x.has("web.example", "10.0.0.1")
	c.shows(t, "web", "10.0.0.1:8080 passing")
	a.Kill()
	x.has("web.example", "10.0.0.2")
	x.wantProblem("cannot be reached")
	a.Start()
	c.shows(t, "web", "10.0.0.2:8080 passing")
	x.well()
	a.Kill()
	a.Forget()
	a.Start()
	c.shows(t, "web", "10.0.0.2:8080 passing")
	x.well()
}

// A token needs only the permissions in the documentation. A service that it may not write is a
// problem, and the others are written.
func TestExportToken(t *testing.T) {
	t.Parallel()
	a := testconsul.Start(t, map[string]any{"acl": map[string]any{"enabled": true, "default_policy": "deny",
		"tokens": map[string]any{"initial_management": management}}})
	c := newCatalog(t, a, management)
	_, reader := c.reader()
	_, token := c.token("exporter", `node_prefix "" { policy = "read" } service_prefix "" { policy = "read" }
		node_prefix "ashore-shop-" { policy = "write" } session_prefix "ashore-shop-" { policy = "write" }
		service_prefix "w" { policy = "write" }`)
	file := filepath.Join(t.TempDir(), "token")
	write := func(token string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(reader)
	o := ways()[0].options(a)
	o.TokenFile = file
	x := export(t, "one", o)
	x.has("api.example", "10.0.0.3")
	x.has("web.example", "10.0.0.1")
	x.has("wiki.example", "10.0.0.2")
	x.wantProblem("Consul refuses the token")
	write(token)
	c.shows(t, "web", "10.0.0.1:8080 passing")
	c.shows(t, "wiki", "10.0.0.2:8080 passing")
	c.shows(t, "api")
	x.wantProblem("Consul service api: is not written completely, Consul refuses it (Permission denied")
	x.has("api.example")
	x.Withdraw()
	<-x.ended
	c.shows(t, "web")
}

// A node of that name that belongs to another program is not changed.
func TestExportOthers(t *testing.T) {
	t.Parallel()
	a := testconsul.Start(t, nil)
	c := newCatalog(t, a, "")
	register := func(node, id string) {
		t.Helper()
		_, err := c.c.Catalog().Register(&api.CatalogRegistration{Node: node, Address: "10.9.0.1", SkipNodeUpdate: true,
			Service: &api.AgentService{ID: id, Service: id, Port: 1}}, nil)
		if err != nil {
			t.Fatal(err)
		}
	}
	register("ashore-taken-one", "there")
	o := ways()[1].options(a)
	o.Export.Owner = "taken"
	x := export(t, "one", o)
	x.has("web.example", "10.0.0.1")
	x.wantProblem(`the node "ashore-taken-one" in Consul is not owned by this mesh`)
	c.shows(t, "web")

	x.Withdraw()
	time.Sleep(time.Second)
	c.shows(t, "there", ":1 passing")
}

// Many entries are written in few transactions, and a storm of changes too; the last state arrives.
func TestExportMany(t *testing.T) {
	t.Parallel()
	a := testconsul.Start(t, nil)
	c := newCatalog(t, a, "")
	o := ways()[1].options(a)
	x := export(t, "one", o)
	const services = 100
	for i := range services {
		x.has(fmt.Sprintf("s%d.example", i), "10.0.0.1", "10.0.0.2", "10.0.0.3")
	}
	eventually(t, func() string { return fmt.Sprintf("%+v", x.Status()) },
		func() bool { return x.Status().Entries == 3*services })
	if n := x.Status().Writes; n > 3*services/31+10 {
		t.Errorf("%d entries took %d transactions", 3*services, n)
	}
	before := x.Status().Writes
	for i := range 200 {
		x.has("s7.example", fmt.Sprintf("10.0.%d.1", i))
		time.Sleep(5 * time.Millisecond)
	}
	c.shows(t, "s7", "10.0.199.1:8080 passing")
	if n := x.Status().Writes - before; n > 40 {
		t.Errorf("200 changes in a second led to %d transactions", n)
	}
	x.Withdraw()
	<-x.ended
	list, _, err := c.c.Catalog().Nodes(&api.QueryOptions{Filter: `Meta["ashore-exported-by"] == "shop"`})
	if err != nil || len(list) != 0 {
		t.Errorf("after the withdrawal there are the nodes %v, %v", list, err)
	}
}
