package outages

import (
	"os"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/internal/e2e/harness"
	"github.com/ashore-mesh/ashore/internal/e2e/mcptest"
)

// outage is one way in which a source is away for a while.
type outage struct {
	name string
	// source is what is away: its name here, and as ashored calls it.
	source, called string
	// begin takes it away, and end brings it back.
	begin, end func()
	// says is part of what ashored says is wrong.
	says string
	// reported waits until ashored reports it.
	reported func(name, words string, began time.Time)
}

// outages are those of all sources but the store, in which the sources are whole before and after.
func (w *world) outages() []outage {
	files, away := w.fileSource(), w.Files+".away"
	gone, back := rename(w.t, w.Files, away), rename(w.t, away, w.Files)
	xds := func(x *mcptest.XDS) func() { return func() { w.serveXDS(x.Register) } }
	state := func(x *mcptest.XDS) func() { return func() { w.serveState(x.Register) } }
	var stop func()
	consul := func(answer func()) func() { return func() { w.agent.Kill(); answer() } }
	agent := func() { stop(); w.agent.Start() }
	backXDS, backState := xds(w.xds), state(w.state)
	return []outage{
		{"Consul is killed", "consul", "consul:dc1", w.agent.Kill, w.agent.Start, "connection refused", w.away},
		{"Consul fails", "consul", "consul:dc1", consul(func() { stop = w.pretend(failing) }), agent, "No cluster leader", w.away},
		{"Consul answers garbage", "consul", "consul:dc1", consul(func() { stop = w.pretend(garbage) }), agent, "Consul", w.away},
		{"a server of MCP is killed", "xds", "mcp:xds", func() { w.serveXDS(nil) }, backXDS, "check that it runs", w.away},
		{"a server of MCP is killed in the middle of its answers", "xds", "mcp:xds", xds(&mcptest.XDS{Store: w.xds.Store, Cut: 4}), backXDS, "killed", w.away},
		{"a server of MCP answers nonsense", "xds", "mcp:xds", xds(&mcptest.XDS{Store: w.xds.Store, Nonsense: true}), backXDS, "it cannot be decoded", w.stale},
		{"a server without delta discovery is killed", "state", "mcp:state", func() { w.serveState(nil) }, backState, "check that it runs", w.away},
		{"a server without delta discovery is killed in the middle", "state", "mcp:state", state(&mcptest.XDS{Store: w.state.Store, NoDelta: true, Cut: 3}), backState, "killed", w.away},
		{"the folder is gone", "files", files, gone, back, w.Files, w.away},
		{"all is gone from the folder", "files", files,
			func() { gone(); mkdir(w.t, w.Files) },
			func() { remove(w.t, w.Files); back() }, "still active", w.retained},
	}
}

func rename(t *testing.T, from, to string) func() {
	return func() {
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
}

func mkdir(t *testing.T, dir string) {
	t.Helper()
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

// Each source fails in turn, and ashored is restarted meanwhile: no call fails, and problems and
// status report the outage. A new proxy reaches everything, and later changes take effect.
func TestOutages(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.callEachOther()
	w.fine()
	for _, o := range w.outages() {
		w.runOutage(o)
	}
	w.clean()
}

// runOutage goes through one outage.
func (w *world) runOutage(o outage) {
	w.t.Helper()
	began := time.Now()
	defer func() { w.t.Logf("%s: %v", o.name, time.Since(began).Round(time.Second)) }()
	o.begin()
	o.reported(o.called, o.says, began)
	w.noFailures(o.name)
	w.Ashored.Kill()
	w.Start()
	o.reported(o.called, o.says, began)
	late := w.newProxy() // others may take their time to come back to an ashored that ends again and again
	defer late.Stop()
	w.noFailures(o.name + ", and a cold start of ashored")
	o.end()
	w.inTouch(o.called)
	w.fine()
	w.fresh(o.source, late)
	w.noFailures(o.name + " is over")
}

// All sources are away at once while ashored starts, and in ways that show late: Consul hangs, one
// MCP server does not answer, and the other one is killed. If the test may mount, the disk of the
// files is not mounted.
func TestAllAway(t *testing.T) {
	t.Parallel()
	var takeAway, bringBack func()
	filesTold := (*world).away
	prepare := func(m *harness.Mesh) {
		takeAway, bringBack = rename(t, m.Files, m.Files+".away"), rename(t, m.Files+".away", m.Files)
		if os.Geteuid() == 0 {
			b := bind(t, m.Files)
			takeAway, bringBack = b.unmount, b.mount
			filesTold = (*world).retained // an empty folder
		}
	}
	w := newWorld(t, prepare)
	w.callEachOther()
	w.fine()
	began := time.Now()
	names := []string{"consul:dc1", "mcp:xds", "mcp:state"}
	w.agent.Freeze()
	w.serveXDS((&mcptest.XDS{Store: w.xds.Store, Silent: true}).Register)
	w.serveState(nil)
	takeAway()
	for _, name := range names {
		w.away(name, "", began)
	}
	filesTold(w, w.fileSource(), "", began)
	w.noFailures("all away")
	w.Ashored.Kill()
	w.Start()
	for _, name := range names {
		w.away(name, "", began)
	}
	filesTold(w, w.fileSource(), "", began)
	late := w.newProxy()
	w.noFailures("all away, and a cold start of ashored")
	bringBack()
	w.serveXDS(w.xds.Register)
	w.serveState(w.state.Register)
	w.agent.Thaw()
	for name, called := range map[string]string{"consul": "consul:dc1", "xds": "mcp:xds", "state": "mcp:state",
		"files": w.fileSource(), "store": w.storeSource()} {
		w.inTouch(called)
		w.fresh(name, late)
	}
	w.fine()
	w.noFailures("all back")
	w.clean()
}
