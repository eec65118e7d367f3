package replicas

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/e2e/harness"
)

// callInterval is the interval of calls through a proxy.
const callInterval = 10 * time.Millisecond

// When any replica is killed under load, no call fails, and the other replicas have all workloads.
func TestKilled(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2, "")
	web1, web2 := w.serve(0, "web-1"), w.serve(1, "web-2")
	a := w.join(0, harness.Workload{Name: "a-1", Group: "shop/a"})
	w.agree(3)
	client := a.Client(servicePort)
	client.Want(t, "web-1", call(), harness.From("web-1"))
	client.Want(t, "web-2", call(), harness.From("web-2"))
	kept, fresh := harness.StartCalls(t, client, call(), callInterval), harness.StartCalls(t, a.Client(servicePort).Fresh(),
		call(), callInterval)

	for round, i := range []int{0, 1, 0} {
		w.meshes[i].Ashored.Kill()
		killed := time.Now()
		for _, p := range []*harness.Proxy{a, web1, web2} {
			w.on(p, 1-i)
		}
		t.Logf("all were at the other replica %v after the kill", time.Since(killed).Round(10*time.Millisecond))
		w.agree(3, i)
		if round == 0 {
			web3 := w.serve(1-i, "web-3") // none is missing
			client.Want(t, "web-3", call(), harness.From("web-3"))
			web3.Stop()
			w.agree(3, i)
		}
		w.meshes[i].Start()
		w.agree(3)
	}
	kept.Clean(t, 200)
	fresh.Clean(t, 200)
}

// What is written on one replica, all have: join tokens, revocations, health.
func TestShared(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2, "")
	w.serve(0, "web-1")
	line := harness.Line(t, w.meshes[0].Token("shop/a", "1h"))
	line[w.planes(line)] = w.meshes[1].TLS() // the token of one replica, used at the other
	a := w.meshes[1].JoinBy(line, harness.Workload{Name: "a-1", Group: "shop/a"})
	w.on(a, 1)
	w.agree(2)
	client := a.Client(servicePort)
	client.Want(t, "across replicas", call(), harness.From("web-1"))

	out, code, err := harness.Command("ashorectl", "workload", "revoke", "shop/a-1", "--reason", "test", "--socket",
		w.meshes[0].Socket())
	if err != nil || code != 0 {
		t.Fatalf("revoke: exit code %d, %v:\n%s", code, err, out)
	}
	w.agree(1)
	a.WantLine("control plane", "revoked")
	client.Want(t, "revoked everywhere", call(), func(got harness.Answer) error { return harness.Status(403)(got) })
	for _, m := range w.meshes {
		list, err := admin.Send(t.Context(), m.Admin, admin.CallWorkloads, admin.None{})
		if err != nil {
			t.Fatal(err)
		}
		if len(list.Revocations) != 1 || !strings.Contains(list.Revocations[0].Name, "a-1") {
			t.Errorf("revocations: %+v", list.Revocations)
		}
	}
}

// A machine that takes the name of another by one replica takes its place at all: the other's proxy
// is cut off where it is.
func TestReplaced(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2, "")
	first := w.join(0, w.application(0, "web-1"))
	w.agree(1)
	other := 1 - w.where(first)
	of := w.application(other, "web-1")
	line := harness.Line(t, w.meshes[other].Token("shop/web", "1h"))
	line[w.planes(line)] = w.meshes[other].TLS()
	second := w.meshes[other].JoinBy(line, of)
	w.on(second, other)
	first.WantLine("control plane", "another machine joined under the name")
	harness.Eventually(t, "the one that was replaced is registered no more", func() error {
		text, err := registered(w.meshes[0])
		if err == nil && (strings.Contains(text, first.IP+`"`) || !strings.Contains(text, second.IP+`"`)) {
			err = fmt.Errorf("it tells %s", text)
		}
		return err
	})
	w.agree(1)
}
