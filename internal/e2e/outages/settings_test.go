package outages

import (
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/e2e/harness"
	"github.com/ashore-mesh/ashore/internal/testport"
)

// serveAgain brings a server back.
func (w *world) serveAgain(s *server) {
	w.t.Helper()
	w.xdsAt, w.stopXDS = s.at, func() {}
	w.serveXDS(s.Register)
	s.stop = w.stopXDS
}

// ready asks ashored whether it serves proxies.
func ready(m *harness.Mesh) (bool, string, error) {
	resp, err := http.Get("http://" + m.Metrics() + "/ready")
	if err != nil {
		return false, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode == http.StatusOK, string(text), err
}

// A source that is required and never answered keeps ashored from serving, and is named with its
// setting; once it answers, proxies are served. One that is not required holds up nothing.
func TestRequired(t *testing.T) {
	t.Parallel()
	t.Run("required", func(t *testing.T) {
		t.Parallel()
		s, other := newServer(t, "never"), newServer(t, "other")
		s.stop()
		w := small(t, harness.Sources(other.source("")))
		other.hold(t, w.Mesh)
		client := w.caller()
		w.steady(client, other)
		w.Reload(other.source(""), s.source(""))
		harness.Eventually(t, "the source named with its setting", func() error {
			for _, reported := range []string{w.ctl("sources"), w.ctl("status")} {
				if !strings.Contains(reported, "mcp:never") || !strings.Contains(reported, "check that it runs") {
					return fmt.Errorf("the output is %s", reported)
				}
			}
			is, text, err := ready(w.Mesh)
			if err == nil && (is || !strings.Contains(text, "mcp:never") ||
				!strings.Contains(text, "sources[1].required")) {
				err = fmt.Errorf("/ready says %v: %s", is, text)
			}
			return err
		})
		w.noFailures("ashored does not serve")
		if status, err := admin.Send(t.Context(), w.Admin, admin.CallStatus, admin.None{}); err != nil || status.Ready || len(status.Proxies) > 0 {
			t.Errorf("it serves before it knows: %+v, %v", status, err)
		}
		s.hold(t, w.Mesh)
		w.serveAgain(s)
		client.Want(t, "served", s.call(), harness.From("never"))
		w.fine()
		w.noFailures("ashored serves")
		w.clean()
	})
	t.Run("not required", func(t *testing.T) {
		t.Parallel()
		s, other := newServer(t, "never"), newServer(t, "other")
		s.stop()
		w := small(t, harness.Sources(s.source(", required: false"), other.source("")))
		other.hold(t, w.Mesh)
		client := w.caller()
		w.steady(client, other)
		w.problem("mcp:never", "check that it runs")
		s.hold(t, w.Mesh)
		w.serveAgain(s)
		client.Want(t, "it came later", s.call(), harness.From("never"))
		w.fine()
		w.noFailures("a source that is not required")
		w.clean()
	})
}

// The settings are reloaded under load: sources come, go, change their server and their place; not
// one call fails. A file with an error is refused as a whole.
func TestReload(t *testing.T) {
	t.Parallel()
	one, two, three := newServer(t, "one"), newServer(t, "two"), newServer(t, "three")
	w := small(t, harness.Sources(one.source(""), two.source("")))
	for _, s := range []*server{one, two, three} {
		s.hold(t, w.Mesh)
	}
	client := w.caller()
	w.steady(client, one)
	w.gone(client, three)

	t.Log("one that comes")
	w.Reload(one.source(""), two.source(""), three.source(""))
	w.steady(client, three)
	w.noFailures("a source that came")

	t.Log("one that goes")
	w.Reload(three.source(""), one.source(""))
	w.gone(client, two)
	w.noFailures("a source that went, and another order")

	t.Log("one that changes its server")
	moved := serverOf(t, "one", one.Store)
	w.Reload(three.source(""), moved.source(""))
	w.inTouch("mcp:one")
	one.stop()
	w.noFailures("a source with another server")
	w.inTouch("mcp:one")

	t.Log("one that changes to a server that is away: what was said stays")
	w.Reload(three.source(""), fmt.Sprintf("{name: one, kind: mcp, address: %q, plaintext: true}", testport.Address(t)))
	w.away("mcp:one", "check that it runs", time.Now())
	w.noFailures("a source whose new server is away")
	w.Ashored.Kill()
	w.Start()
	w.away("mcp:one", "check that it runs", time.Now())
	w.noFailures("and a cold start of ashored")
	w.Reload(three.source(""), moved.source(""))
	w.inTouch("mcp:one")
	w.fine()

	t.Log("a folder that takes the place of another one, with a slip in it")
	folder := t.TempDir()
	w.Write("extra.yaml", routed("one", "one.test"))
	extra := filepath.Join(w.Files, "extra.yaml")
	harness.Eventually(t, "the object is read in its first place", func() error {
		out := w.ctl("get", "virtualservices", "-n", "shop", "-o", "name")
		if !strings.Contains(out, "shop/one") {
			return fmt.Errorf("the objects are %q", out)
		}
		return nil
	})
	if err := os.WriteFile(filepath.Join(folder, "extra.yaml"),
		[]byte(strings.Replace(routed("one", "one.test"), "route:", "rout:", 1)), fs.FileMode(0o600)); err != nil {
		t.Fatal(err)
	}
	w.Reload(three.source(""), moved.source(""), fmt.Sprintf("{name: extra, kind: files, folder: %s}", folder))
	w.problem("VirtualService shop/one", `did you mean "route"?`)
	if err := os.Remove(extra); err != nil {
		t.Fatal(err)
	}
	w.problem("VirtualService shop/one", "still active, because")
	w.noFailures("an object that is refused in its new place")
	w.Reload(three.source(""), moved.source(""))
	w.fine()

	t.Log("files that are wrong")
	w.Reload(three.source(""), moved.source(""), "{name: x, kind: mcp, addres: here}")
	w.problem("settings", "are not reloaded", "addres")
	w.noFailures("refused settings")
	w.Reload(three.source(""), moved.source(""))
	w.fine()
	w.clean()
}
