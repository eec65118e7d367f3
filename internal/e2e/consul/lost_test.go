package consul

import (
	"testing"

	"github.com/ashore-mesh/ashore/internal/testconsul"
)

// A Consul that has lost its disk, and starts with nothing, removes nothing for 10 minutes: what it
// had stays, with a problem, and each service follows Consul again once it is registered again.
func TestDataLost(t *testing.T) {
	t.Parallel()
	for _, w := range ways() {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			a := testconsul.Start(t, nil)
			c := newCatalog(t, a, "")
			c.put("web-1", "10.0.0.1", 80, "passing")
			c.others()
			for range 40 { // no small index, as that of a Consul which has been in use
				c.health("web-1", "critical")
				c.health("web-1", "passing")
			}
			v := follow(t, w.options(a))
			v.synced(t)
			v.has(t, "web.service.consul", "10.0.0.1:80 healthy")
			a.Kill()
			v.wantProblem(t, "cannot be reached")
			a.Forget()
			a.Start()
			v.wantProblem(t, "lost all or most of its items at once")
			v.has(t, "web.service.consul", "10.0.0.1:80 healthy")
			c.put("web-1", "10.0.0.9", 80, "passing")
			v.has(t, "web.service.consul", "10.0.0.9:80 healthy")
			if !v.knows("other3.service.consul") {
				t.Error("what is not registered again yet is gone")
			}
			c.others()
			v.wantProblem(t, "")
			c.remove("other3-1")
			v.until(t, "other3 is gone", func() bool { return v.endpoints("other3.service.consul") == nil })
		})
	}
}
