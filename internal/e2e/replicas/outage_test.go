package replicas

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/e2e/harness"
	"github.com/ashore-mesh/ashore/internal/feed"
)

// steady starts calls of a-1 to web; what it returns ends them, and not one may have failed.
func steady(t *testing.T, a *harness.Proxy) func() {
	t.Helper()
	a.Client(servicePort).Want(t, "web answers", call(), harness.Status(200))
	kept, fresh := harness.StartCalls(t, a.Client(servicePort), call(), callInterval), harness.StartCalls(t,
		a.Client(servicePort).Fresh(), call(), callInterval)
	return func() {
		t.Helper()
		kept.Clean(t, 20)
		fresh.Clean(t, 20)
	}
}

// problem waits until a replica reports a problem with all words; none: of none of the workloads'
// or of the store.
func (w *world) problem(i int, words ...string) {
	w.t.Helper()
	harness.Eventually(w.t, "a problem with "+strings.Join(words, ", "), func() error {
		list, err := admin.Send(w.t.Context(), w.meshes[i].Admin, admin.CallProblems, admin.None{})
		if err != nil {
			return err
		}
		return found(list, words)
	})
}

// found says whether a list has a problem with all of words; of none, that it has no problem of the
// workloads' or of the store.
func found(list []feed.Problem, words []string) error {
	var texts []string
	for _, p := range list {
		text := p.String()
		if len(words) == 0 && p.Source != "workloads" && p.Source != "store" {
			continue
		}
		texts = append(texts, text)
		if len(words) > 0 && !slices.ContainsFunc(words, func(word string) bool {
			return !strings.Contains(text,
				word)
		}) {
			return nil
		}
	}
	if len(words) == 0 && len(texts) == 0 {
		return nil
	}
	return fmt.Errorf("they are %q", texts)
}

// A replica that cannot reach Consul serves its proxies, and new ones of known workloads. Within
// the restart grace the other replicas keep its workloads, and they have the new ones when it is
// back. No call fails.
func TestPartition(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2, "")
	web1 := w.serve(0, "web-1")
	w.serve(1, "web-2")
	a := w.join(1, harness.Workload{Name: "a-1", Group: "shop/a"})
	w.agree(3)
	clean := steady(t, a)

	off := w.where(web1)
	id := w.meshes[off].Enrol(w.application(off, "web-3"))
	w.cut(off)
	w.problem(off, "the store has been unavailable")
	if w.where(web1) != off {
		t.Error("a proxy was cut off because its replica was")
	}
	// it is known, and comes to the replica that is cut off
	late := w.meshes[off].Agent(id, "--xds", w.meshes[off].TLS())
	late.Ready()
	time.Sleep(30 * time.Second) // the others find that it sends no heartbeats after 20s
	a.Client(servicePort).Want(t, "who is with the one that is cut off", call(), harness.From("web-1"))
	w.mend(off)
	w.agree(4)
	a.Client(servicePort).Want(t, "who came meanwhile", call(), harness.From("web-3"))
	w.problem(off)
	clean()
}

// Consul is away: no connection is closed, a replica that starts meanwhile is complete, and changes
// continue when it is back.
func TestConsulAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2, "")
	web1 := w.serve(0, "web-1")
	w.serve(1, "web-2")
	a := w.join(1, harness.Workload{Name: "a-1", Group: "shop/a"})
	w.agree(3)
	clean := steady(t, a)
	time.Sleep(3 * time.Second) // each replica's copy is written down

	w.consul.Kill()
	w.problem(0, "the store has been unavailable")
	for i, m := range w.meshes { // each in turn starts while Consul is away
		m.Ashored.Kill()
		w.on(web1, 1-i)
		w.on(a, 1-i)
		m.Start()
	}
	for _, from := range []string{"web-1", "web-2"} {
		a.Client(servicePort).Want(t, from, call(), harness.From(from))
	}
	w.consul.Start()
	w.agree(3)
	w.problem(0)
	w.problem(1)
	w.serve(1, "web-3")
	w.agree(4)
	clean()
}
