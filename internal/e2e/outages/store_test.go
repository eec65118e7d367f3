package outages

import (
	"strings"
	"testing"

	"github.com/ashore-mesh/ashore/internal/e2e/harness"
)

// The disk of the store becomes read-only: writes to the store are refused with what to do, what
// other sources say takes effect, and what was in use stays. ashored does not start on such a disk,
// and says why; Envoys continue. With the disk mended all is as before.
func TestReadOnlyDisk(t *testing.T) {
	t.Parallel()
	if why := diskless(); why != "" {
		t.Skip(why)
	}
	var d *disk
	w := newWorld(t, harness.StateOn(func(dir string) { d = newDisk(t, dir) }))
	w.callEachOther()
	w.fine()

	d.fail()
	out := w.ctl("apply", "-f", w.file(outside("x", "x.test", "127.0.0.1")))
	if !strings.Contains(out, "mounted for reading only") || !strings.Contains(out, "nothing was changed") {
		t.Errorf("apply on a disk that is read-only: %s", out)
	}
	for _, name := range []string{"consul", "xds", "state", "files"} {
		w.fresh(name, w.proxies["files"])
	}
	w.problem("cannot save the active content for a restart")
	w.noFailures("a disk that is read-only")

	w.Ashored.Kill()
	out, code, err := harness.Command("ashored", "--config", w.SettingsFile())
	if err != nil || code != 1 || !strings.Contains(out, w.State) ||
		!strings.Contains(out, "mounted for reading only: mount it for writing") {
		t.Errorf("a start on a disk that is read-only: exit code %d, %v: %s", code, err, out)
	}
	w.noFailures("a disk that is read-only, and ashored is down")

	d.mend()
	w.Start()
	late := w.newProxy()
	for name, called := range map[string]string{"consul": "consul:dc1", "xds": "mcp:xds", "state": "mcp:state",
		"files": w.fileSource(), "store": w.storeSource()} {
		w.inTouch(called)
		w.fresh(name, late)
	}
	w.fine()
	w.noFailures("the disk is mended")
	w.clean()
}
