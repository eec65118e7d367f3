package outages

import (
	"fmt"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/internal/e2e/harness"
	"github.com/ashore-mesh/ashore/internal/e2e/mcptest"
)

// server is a server of MCP over xDS with one host, where an application of its name answers.
type server struct {
	*mcptest.XDS
	name, at string
	stop     func()
}

// newServer starts one; the application is on a loopback address of the mesh's, which is made
// later.
func newServer(t *testing.T, name string) *server {
	t.Helper()
	return serverOf(t, name, mcptest.NewStore())
}

// serverOf starts one that holds what another one does.
func serverOf(t *testing.T, name string, store *mcptest.Store) *server {
	t.Helper()
	s := &server{XDS: &mcptest.XDS{Store: store}, name: name}
	s.at, s.stop = mcptest.Serve(t, "", s.Register)
	return s
}

// source is the setting of the server as a source, with more options.
func (s *server) source(more string) string {
	return fmt.Sprintf("{name: %s, kind: mcp, address: %q, plaintext: true%s}", s.name, s.at, more)
}

// hold has it hold its host, and starts the application that answers there.
func (s *server) hold(t *testing.T, m *harness.Mesh) {
	t.Helper()
	ip := m.IP()
	harness.NewBackend(t, s.name, fmt.Sprintf("%s:%d", ip, appPort))
	put(t, s.Store, xdsType, outside(s.name, s.host(), ip))
}

func (s *server) host() string { return s.name + ".test" }

// call is a request to its host.
func (s *server) call() harness.Request { return harness.Request{Host: s.host()} }

// small is a mesh with one workload, that calls, and no source but what options name, a folder and
// the store.
func small(t *testing.T, options ...harness.Option) *world {
	t.Helper()
	w := &world{t: t, proxies: map[string]*harness.Proxy{}, loads: map[string]*harness.Load{}}
	w.Mesh = harness.New(t, nil, append([]harness.Option{harness.Secure("")}, options...)...)
	w.Write("caller.yaml", group("caller"))
	return w
}

// caller joins the workload that calls.
func (w *world) caller() *harness.Client {
	w.t.Helper()
	w.proxies["caller"] = w.Join(harness.Workload{Name: "caller-1", Group: "shop/caller"})
	return w.proxies["caller"].Client(servicePort)
}

// steady calls a server's host until the test ends.
func (w *world) steady(client *harness.Client, s *server) {
	w.t.Helper()
	client.Want(w.t, s.host(), s.call(), harness.From(s.name))
	w.loads[s.name] = harness.StartCalls(w.t, client, s.call(), 20*time.Millisecond)
}

// gone waits until no application answers for a server's host any more.
func (w *world) gone(client *harness.Client, s *server) {
	w.t.Helper()
	harness.Eventually(w.t, s.host()+" is gone", func() error {
		if a, err := client.Do(s.call()); err == nil && a.Seen.Backend != "" {
			return fmt.Errorf("%s answered", a.Seen.Backend)
		}
		return nil
	})
}
