package identity

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/e2e/harness"
)

// notAccepted is the answer to every invalid token.
const notAccepted = "the join token is not accepted: it may be used, expired, revoked, mistyped or for another group; make a new one on the control plane: ashorectl join-token create --group NAMESPACE/NAME"

// A token is good once, for one key, until it ends; the client gets no more details, and the audit
// log has the reason.
func TestTokens(t *testing.T) {
	t.Parallel()
	m := harness.New(t, map[string]string{"web.yaml": service("web"), "a.yaml": group("a")}, harness.Secure(""))
	expiring, made := m.Token("shop/a", "1m"), time.Now()
	paste := func(line []string, name, state string) (string, int) {
		t.Helper()
		out, code, err := m.Paste(line, name, m.IP(), state)
		if err != nil {
			t.Fatal(err)
		}
		return out, code
	}
	joins := func(line []string, name, state, says string) {
		t.Helper()
		if out, code := paste(line, name, state); code != 0 || !strings.Contains(out, says) {
			t.Errorf("%s: exit code %d, want 0, and %q in:\n%s", name, code, says, out)
		}
	}
	refused := func(line []string, id, reason string) {
		t.Helper()
		if out, code := paste(line, "nobody", t.TempDir()); code != 1 || !strings.Contains(out, notAccepted) {
			t.Errorf("%s: exit code %d, want 1, and %q in:\n%s", reason, code, notAccepted, out)
		}
		m.Audited(audit.TokenRefuse, audit.Refused, "token "+reason, id)
	}

	token, state := m.Token("shop/a", ""), t.TempDir()
	line := harness.Line(t, token)
	m.Audited(audit.TokenCreate, token.ID, "shop/a")
	joins(line, "first", state, "spiffe://cluster.local/ns/shop/sa/a: joined\n")
	m.Audited(audit.TokenUse, token.ID, "shop/first")
	joins(line, "first", state, "has joined before (the token was not used)")
	refused(line, token.ID, "used")

	good := m.Token("shop/a", "")
	tampered, at := good, len(good.Token)-2
	last := "A"
	if good.Token[at] == 'A' {
		last = "B"
	}
	tampered.Token = good.Token[:at] + last + good.Token[at+1:]
	refused(harness.Line(t, tampered), good.ID, "tampered")
	joins(harness.Line(t, good), "second", t.TempDir(), "joined\n") // the tampered one took nothing from it

	revoked := m.Token("shop/a", "")
	if _, err := admin.Send(t.Context(), m.Admin, admin.CallRevokeToken, admin.TokenID{ID: revoked.ID}); err != nil {
		t.Fatal(err)
	}
	refused(harness.Line(t, revoked), revoked.ID, "unknown")

	time.Sleep(time.Until(made.Add(time.Minute + time.Second)))
	refused(harness.Line(t, expiring), expiring.ID, "expired")
}

// Of two machines that use one token at a time, one joins, whichever it is, and the other is
// refused.
func TestTwoMachinesOneToken(t *testing.T) {
	t.Parallel()
	m := harness.New(t, map[string]string{"a.yaml": group("a")}, harness.Secure(""))
	for round := range 5 {
		token := m.Token("shop/a", "")
		line := harness.Line(t, token)
		codes, outs := make([]int, 2), make([]string, 2)
		var both sync.WaitGroup
		for i := range codes {
			ip, state := m.IP(), t.TempDir()
			both.Go(func() {
				out, code, err := m.Paste(slices.Clone(line), fmt.Sprintf("machine-%d-%d", round, i), ip, state)
				if err != nil {
					t.Error(err)
				}
				outs[i], codes[i] = out, code
			})
		}
		both.Wait()
		loser := slices.Index(codes, 1)
		if codes[0]+codes[1] != 1 || !strings.Contains(outs[loser], notAccepted) {
			t.Fatalf("exit codes %v, want one 0 and one 1 that says %q:\n%s\n%s", codes, notAccepted, outs[0], outs[1])
		}
		m.Audited(audit.TokenRefuse, audit.Refused, "token used", token.ID,
			fmt.Sprintf("machine-%d-%d", round, 1-loser))
	}
	list, err := admin.Send(t.Context(), m.Admin, admin.CallWorkloads, admin.None{})
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Workloads) != 5 {
		t.Errorf("%d workloads have joined, want 5", len(list.Workloads))
	}
}

// A line is pasted again while the agent runs: it says so, succeeds, and traffic continues.
func TestPastedTwice(t *testing.T) {
	t.Parallel()
	m := harness.New(t, map[string]string{"web.yaml": service("web"), "a.yaml": group("a")}, harness.Secure(""))
	serve(t, m, "web", "web-1")
	token := m.Token("shop/a", "")
	a := m.JoinBy(harness.Line(t, token), harness.Workload{Name: "a-1"})
	all := steady(t, a, "web-1")
	out, code, err := m.Paste(harness.Line(t, token), "a-1", a.IP, a.State)
	want := fmt.Sprintf("running, pid %d", a.PID())
	if err != nil || code != 0 || !strings.Contains(out, want) || !strings.Contains(out, "the token was not used") {
		t.Errorf("exit code %d, error %v, want 0 and %q in:\n%s", code, err, want, out)
	}
	all.more(t, 50)
	all.clean(t)
}

// A token of one group serves no member of another: a changed command is refused and audited with
// the reason, and the original command still works.
func TestTokenOfAnotherGroup(t *testing.T) {
	t.Parallel()
	m := harness.New(t, map[string]string{"web.yaml": service("web"), "a.yaml": group("a"),
		"other.yaml": strings.ReplaceAll(group("a"), "namespace: shop", "namespace: other")}, harness.Secure(""))
	s := applications(t, m, "web-x")
	line := harness.Line(t, m.Token("shop/a", ""))
	for _, claimed := range []string{"other/a", "shop/web", "shop/nobody"} {
		wrong := slices.Clone(line)
		wrong[slices.Index(wrong, "shop/a")] = claimed
		out, code, err := m.Paste(wrong, "stranger", m.IP(), t.TempDir())
		if err != nil || code != 1 || !strings.Contains(out, "the join token is not accepted") {
			t.Errorf("group %s: exit code %d, error %v, want 1 and that the token is not accepted in:\n%s", claimed,
				code, err, out)
		}
		m.Audited(audit.TokenRefuse, "token of another group", claimed)
	}
	p := m.JoinBy(line, harness.Workload{Name: "web-x", IP: s.ip()})
	p.WantLine("identity", "ok", "spiffe://cluster.local/ns/shop/sa/a")
	if got, err := p.Client(httpPort).Do(call()); err == nil && got.Status == 200 {
		t.Errorf("it serves as web: %+v", got)
	}
}
