package crd

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kubetesting "k8s.io/client-go/testing"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
)

// statusWorld is a writer, the cluster it writes to, and the active objects.
type statusWorld struct {
	*StatusWriter
	c        *fakeCluster
	active   map[config.Key]*config.Object
	problems []feed.Problem
}

func newStatusWorld(t *testing.T) *statusWorld {
	w := &statusWorld{c: newFakeCluster(t, config.Gateway), active: map[config.Key]*config.Object{}}
	w.StatusWriter = NewStatusWriter(StatusConfig{
		Source: New(Config{Cluster: w.c.kube}), Active: func(k config.Key) *config.Object { return w.active[k] },
		Problems: func() []feed.Problem { return w.problems },
	})
	w.reset()
	return w
}

// read makes the source read an object. Its valid version becomes active.
func (w *statusWorld) read(u *unstructured.Unstructured) *object {
	info, _ := config.Info(config.Kind(u.GetKind()))
	o, up := convert("kubernetes:east/objects", info, u.DeepCopy())
	o.resource = gvrOf(u)
	w.cfg.Source.set(o.key, o)
	w.problems = up.Problems
	for i := range w.problems {
		w.problems[i].Source = "kubernetes:east/objects"
	}
	if len(up.Items) > 0 {
		w.active[o.key] = up.Items[0]
	}
	return o
}

// reread makes the source read what the cluster has.
func (w *statusWorld) reread(name string) {
	w.c.t.Helper()
	w.read(w.get(name))
}

func (w *statusWorld) get(name string) *unstructured.Unstructured {
	w.c.t.Helper()
	g := gateway(name, 1, 80)
	u, err := w.c.dynamic.Resource(gvrOf(g)).Namespace("edge").Get(w.c.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		w.c.t.Fatal(err)
	}
	return u
}

// patches returns the number of writes since the last call.
func (w *statusWorld) patches() (n int) {
	for _, a := range w.c.dynamic.Actions() {
		if _, ok := a.(kubetesting.PatchAction); ok {
			n++
		}
	}
	w.c.dynamic.ClearActions()
	return n
}

// conditions returns the conditions of a Gateway as text.
func (w *statusWorld) conditions(name string) string {
	list, _, _ := unstructured.NestedSlice(w.get(name).Object, "status", "conditions")
	var out []string
	for _, entry := range list {
		m := entry.(map[string]any)
		out = append(out, fmt.Sprintf("%v=%v %v %v %v", m["type"], m["status"], m["reason"], m["observedGeneration"],
			m["message"]))
	}
	return strings.Join(out, "; ")
}

func (w *statusWorld) want(writes int, conditions string) {
	w.c.t.Helper()
	w.writeSome(w.c.t.Context())
	if n := w.patches(); n != writes {
		w.c.t.Errorf("%d writes, want %d", n, writes)
	}
	if got := w.conditions("a"); !strings.HasPrefix(got, conditions) {
		w.c.t.Errorf("conditions\n%s\nwant\n%s", got, conditions)
	}
}

func TestStatus(t *testing.T) {
	t.Parallel()
	w := newStatusWorld(t)
	u := gateway("a", 1, 80)
	u.Object["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Other", "status": "True"}}}
	w.c.create(u)
	w.read(u)
	w.want(1, "Other=True <nil> <nil> <nil>; Reconciled=True Active 1 <nil>")
	w.want(0, "Other=True")
	w.reread("a")
	w.want(0, "Other=True")

	invalid := w.get("a")
	invalid.Object["spec"] = gateway("a", 2, 0).Object["spec"]
	invalid.Object["metadata"] = gateway("a", 2, 0).Object["metadata"]
	w.c.update(invalid)
	w.read(invalid)
	w.want(1, "Other=True <nil> <nil> <nil>; Reconciled=False Invalid 2 spec.servers[0].port.number: ")
	if got := w.conditions("a"); !strings.HasSuffix(got, "\ngeneration 1 stays active") {
		t.Errorf("conditions %q do not name the active generation", got)
	}
}

// A valid object that proxies do not use yet keeps its status, and one that another source overrides
// says so.
func TestStatusNotActive(t *testing.T) {
	t.Parallel()
	w := newStatusWorld(t)
	u := gateway("a", 1, 80)
	w.c.create(u)
	o := w.read(u)
	mine := w.active[o.key]
	delete(w.active, o.key)
	w.want(0, "")
	older := *mine
	older.Hash++
	w.active[o.key] = &older
	w.want(0, "")
	other := *mine
	other.Origin.Source = "files"
	w.active[o.key] = &other
	w.problems = []feed.Problem{{Severity: feed.Error, Source: "kubernetes:east/objects", Object: o.key.String(),
		Text: "defined in web.yaml"}}
	w.want(1, "Reconciled=False Overridden 1 defined in web.yaml")
}

// A writer that replaces our condition has the last word, until there is news.
func TestStatusOtherWriter(t *testing.T) {
	t.Parallel()
	w := newStatusWorld(t)
	w.c.create(gateway("a", 1, 80))
	w.reread("a")
	w.want(1, "Reconciled=True")
	w.c.update(gateway("a", 1, 80)) // without a status
	w.reread("a")
	w.want(0, "")
	w.c.update(gateway("a", 2, 81))
	w.reread("a")
	w.want(1, "Reconciled=True Active 2")
}

// Without the right to write there is one problem and one request.
func TestStatusForbidden(t *testing.T) {
	t.Parallel()
	w := newStatusWorld(t)
	w.c.create(gateway("a", 1, 80))
	w.reread("a")
	w.c.fail("patch gateways", forbidden("gateways"))
	w.want(1, "")
	w.want(0, "")
	p := w.Problems()
	if len(p) != 1 || !strings.Contains(p[0].Text, "does not allow ashored to patch gateways.networking.istio.io/status") {
		t.Errorf("problems %v do not name the right", p)
	}
	w.refused[config.Gateway] = w.refused[config.Gateway].Add(-refusedGap)
	w.c.fail("patch gateways", nil)
	w.want(1, "Reconciled=True")
	if p := w.Problems(); len(p) != 0 {
		t.Errorf("problems %v, want none", p)
	}
}

// Writes are limited, and an unreachable API server gets one request.
func TestStatusRate(t *testing.T) {
	t.Parallel()
	w := newStatusWorld(t)
	for n := range 25 {
		name := fmt.Sprintf("g%d", n)
		w.c.create(gateway(name, 1, 80))
		w.reread(name)
	}
	w.c.dynamic.ClearActions()
	w.c.fail("patch gateways", errors.New("connection refused"))
	for _, writes := range []int{1, 10, 10, 5, 0} {
		w.writeSome(t.Context())
		if n := w.patches(); n != writes {
			t.Errorf("%d writes, want %d", n, writes)
		}
		w.c.fail("patch gateways", nil)
	}
}
