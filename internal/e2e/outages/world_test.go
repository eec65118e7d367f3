package outages

import (
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"google.golang.org/grpc"

	"github.com/ashore-mesh/ashore/internal/e2e/harness"
	"github.com/ashore-mesh/ashore/internal/e2e/mcptest"
	"github.com/ashore-mesh/ashore/internal/testconsul"
)

// hosts are the services of each source, by its name here: a workload of that name serves it.
var hosts = map[string]string{
	"files": "files.test", "store": "store.test", "xds": "xds.test", "state": "state.test", "consul": "web.service.consul",
}

// merged is a service that three sources have endpoints of: Consul, the files, and a server of MCP
// over xDS.
const merged, mergedBy = "merged.service.consul", "consul files xds"

// world is an ashored with every kind of source, and a workload with a proxy for each of them.
type world struct {
	*harness.Mesh
	t *testing.T

	agent   *testconsul.Agent
	catalog *api.Client
	xds     *mcptest.XDS
	state   *mcptest.XDS // serves state of the world only
	// xdsAt and stateAt are where the servers of MCP are; stopXDS and stopState end what is there.
	xdsAt, stateAt     string
	stopXDS, stopState func()

	proxies map[string]*harness.Proxy // by source
	loads   map[string]*harness.Load  // by "caller calls host"
	late    int                       // how many hosts and workloads came later
}

// newWorld starts everything; options prepare the mesh.
func newWorld(t *testing.T, options ...harness.Option) *world {
	t.Helper()
	w := &world{t: t, proxies: map[string]*harness.Proxy{}, loads: map[string]*harness.Load{}}
	w.agent = testconsul.Start(t, nil)
	transport := &http.Transport{MaxIdleConnsPerHost: 4}
	t.Cleanup(transport.CloseIdleConnections)
	var err error
	if w.catalog, err = api.NewClient(&api.Config{Address: w.agent.Address,
		HttpClient: &http.Client{Transport: transport}}); err != nil {
		t.Fatal(err)
	}
	w.xds = &mcptest.XDS{Store: mcptest.NewStore()}
	w.state = &mcptest.XDS{Store: mcptest.NewStore(), NoDelta: true}
	put(t, w.xds.Store, xdsType, group("xds")+service("xds", hosts["xds"], "xds")+service("merged-xds", merged, "xds"))
	put(t, w.state.Store, xdsType, group("state")+service("state", hosts["state"], "state")+routed("xds", hosts["xds"],
		hosts["store"], hosts["consul"]))
	w.xdsAt, w.stopXDS = mcptest.Serve(t, "", w.xds.Register)
	w.stateAt, w.stopState = mcptest.Serve(t, "", w.state.Register)
	w.Mesh = harness.New(t, nil, append([]harness.Option{harness.Secure(""), harness.Sources(w.settings()...)},
		options...)...)
	w.Write("files.yaml", group("files")+group("consul")+group("caller")+service("files", hosts["files"],
		"files")+service("merged-files", merged, "files")+strict)
	w.apply(group("store") + service("store", hosts["store"], "store") + routed("consul", hosts["consul"], hosts["xds"],
		hosts["state"]))
	return w
}

// settings are the sources besides the files and the store.
func (w *world) settings() []string {
	return []string{
		fmt.Sprintf("{name: dc1, kind: consul, address: %q, tls: {caFile: %s}, namespace: shop}",
			"https://"+w.agent.Secure, w.agent.CAFile),
		fmt.Sprintf("{name: xds, kind: mcp, address: %q, plaintext: true}", w.xdsAt),
		fmt.Sprintf("{name: state, kind: mcp, address: %q, plaintext: true}", w.stateAt),
	}
}

// fileSource and storeSource are the names of the sources.
func (w *world) fileSource() string  { return "files" }
func (w *world) storeSource() string { return "store" }

// ctl runs ashorectl and returns what it printed.
func (w *world) ctl(args ...string) string {
	w.t.Helper()
	out, _, err := harness.Command("ashorectl", append([]string{"--socket", w.Socket()}, args...)...)
	if err != nil {
		w.t.Fatal(err)
	}
	return out
}

// file writes a text where ashored does not read, and returns its path.
func (w *world) file(text string) string {
	w.t.Helper()
	path := filepath.Join(w.t.TempDir(), "text.yaml")
	if err := os.WriteFile(path, []byte(text), fs.FileMode(0o600)); err != nil {
		w.t.Fatal(err)
	}
	return path
}

// apply writes objects to the store.
func (w *world) apply(text string) {
	w.t.Helper()
	if out := w.ctl("apply", "-f", w.file(text)); !strings.Contains(out, "revision") {
		w.t.Fatalf("apply: %s", out)
	}
}

// register registers an instance in Consul, on a node of its own.
func (w *world) register(id, service, address string, port int, meta map[string]string) {
	w.t.Helper()
	_, err := w.catalog.Catalog().Register(&api.CatalogRegistration{
		Node: "node-of-" + id, Address: "10.9.9.9", SkipNodeUpdate: true,
		Service: &api.AgentService{ID: id, Service: service, Address: address, Port: port, Meta: meta},
		Check: &api.AgentCheck{Node: "node-of-" + id, CheckID: "service:" + id, Name: "alive",
			Status: api.HealthPassing, ServiceID: id},
	}, nil)
	if err != nil {
		w.t.Fatal(err)
	}
}

// member starts an application with the name of a group, and a proxy in front of it that joins the
// group.
func (w *world) member(name string) {
	w.t.Helper()
	ip := w.IP()
	harness.NewBackend(w.t, name, fmt.Sprintf("%s:%d", ip, appPort))
	if name == "consul" {
		meta := map[string]string{"protocol": "http", "ashore-service-account": "consul",
			"ashore-port": fmt.Sprint(servicePort)}
		w.register("web-1", "web", ip, proxyPort, meta)
		w.register("merged-1", "merged", ip, proxyPort, meta)
	}
	w.proxies[name] = w.Join(harness.Workload{Name: name + "-1", Group: "shop/" + name, IP: ip})
}

// callAll waits until a client reaches the service of each source, and each source's part of the
// merged one.
func (w *world) callAll(client *harness.Client) {
	w.t.Helper()
	for name, host := range hosts {
		client.Want(w.t, host, harness.Request{Host: host}, harness.From(name))
	}
	for name := range strings.FieldsSeq(mergedBy) {
		client.Want(w.t, merged+" of "+name, harness.Request{Host: merged}, harness.From(name))
	}
	for _, across := range [][2]string{{"consul", "xds"}, {"consul", "state"}, {"xds", "store"}, {"xds", "consul"}} {
		to := harness.Request{Host: hosts[across[0]], Header: map[string]string{"to": hosts[across[1]]}}
		client.Want(w.t, across[0]+" routed to "+across[1], to, harness.From(across[1]))
	}
}

// callInterval is the interval between calls of one workload to one service: all together it is some 250
// times a second.
const callInterval = 100 * time.Millisecond

// callEachOther has every workload call the services of all sources, the merged one included, until
// stopped.
func (w *world) callEachOther() {
	w.t.Helper()
	for name := range hosts {
		w.member(name)
	}
	for caller, proxy := range w.proxies {
		client := proxy.Client(servicePort)
		w.callAll(client)
		for name, host := range hosts {
			if name != caller {
				w.loads[caller+" calls "+host] = harness.StartCalls(w.t, client, harness.Request{Host: host}, callInterval)
			}
		}
		w.loads[caller+" calls "+merged] = harness.StartCalls(w.t, proxy.Client(servicePort).Fresh(),
			harness.Request{Host: merged}, callInterval)
	}
}

// noFailures waits until each load made some more calls. Not one may have failed until now.
func (w *world) noFailures(what string) {
	w.t.Helper()
	want := map[string]int{}
	for name, l := range w.loads {
		want[name] = l.Total() + 10
	}
	harness.Eventually(w.t, "calls", func() error {
		for name, l := range w.loads {
			if got := l.Total(); got < want[name] {
				return fmt.Errorf("%s: %d of %d", name, got, want[name])
			}
		}
		return nil
	})
	for name, l := range w.loads {
		if n := l.Failures(); n > 0 {
			l.Clean(w.t, 0) // tells of each kind
			w.t.Fatalf("%s: %s: %d calls failed", what, name, n)
		}
	}
}

// clean ends the loads; not one call may have failed.
func (w *world) clean() {
	w.t.Helper()
	for _, l := range w.loads {
		l.Clean(w.t, 10)
	}
}

// newProxy joins while something is away, and reaches everybody.
func (w *world) newProxy() *harness.Proxy {
	w.t.Helper()
	w.late++
	p := w.Join(harness.Workload{Name: fmt.Sprintf("caller-%d", w.late), Group: "shop/caller"})
	w.callAll(p.Client(servicePort))
	return p
}

// serveXDS and serveState have other servers take the places of those of MCP; nil: nobody does.
func (w *world) serveXDS(register func(*grpc.Server)) {
	w.t.Helper()
	w.stopXDS()
	if register != nil {
		_, w.stopXDS = mcptest.Serve(w.t, w.xdsAt, register)
	}
}

func (w *world) serveState(register func(*grpc.Server)) {
	w.t.Helper()
	w.stopState()
	if register != nil {
		_, w.stopState = mcptest.Serve(w.t, w.stateAt, register)
	}
}

// fresh adds a host to a source, by its name here, and waits until a caller reaches it: the source
// is in touch.
func (w *world) fresh(source string, caller *harness.Proxy) {
	w.t.Helper()
	w.late++
	name := fmt.Sprintf("late-%d", w.late)
	host := name + ".test"
	ip := w.IP()
	harness.NewBackend(w.t, name, fmt.Sprintf("%s:%d", ip, appPort))
	text := outside(name, host, ip)
	switch source {
	case "consul":
		host = name + ".service.consul"
		w.register(name+"-1", name, ip, appPort, map[string]string{"protocol": "http",
			"ashore-port": fmt.Sprint(servicePort)})
	case "xds":
		put(w.t, w.xds.Store, xdsType, text)
	case "state":
		put(w.t, w.state.Store, xdsType, text)
	case "files":
		w.Write(name+".yaml", text)
	case "store":
		w.apply(text)
	}
	caller.Client(servicePort).Want(w.t, "what is new of "+source, harness.Request{Host: host}, harness.From(name))
}
