package consul

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/ashore-mesh/ashore/internal/testconsul"
	"github.com/ashore-mesh/ashore/registry/consul"
)

// others registers twelve more services.
func (c catalog) others() {
	c.t.Helper()
	for i := range 12 {
		c.put(fmt.Sprintf("other%d-1", i), "10.1.0.1", 80, "passing")
	}
}

// While an agent is down, all endpoints stay, and the source reports the outage. Changes arrive
// when it is back.
func TestKilled(t *testing.T) {
	t.Parallel()
	for _, w := range ways() {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			a := testconsul.Start(t, nil)
			c := newCatalog(t, a, "")
			c.put("web-1", "10.0.0.1", 80, "passing")
			c.others()
			v := follow(t, w.options(a))
			v.has(t, "web.service.consul", "10.0.0.1:80 healthy")
			_, before := v.said()
			a.Kill()
			v.wantProblem(t, "cannot be reached")
			if _, after := v.said(); after != before {
				t.Errorf("%d updates because of an outage", after-before)
			}
			a.Start()
			c.put("web-2", "10.0.0.2", 80, "passing")
			v.has(t, "web.service.consul", "10.0.0.1:80 healthy", "10.0.0.2:80 healthy")
			v.wantProblem(t, "")
			c.health("other3-1", "critical")
			v.has(t, "other3.service.consul", "10.1.0.1:80 unhealthy")
		})
	}
}

// A source that starts while Consul is away says so, and nothing of services, until Consul is
// there.
func TestAwayAtTheStart(t *testing.T) {
	t.Parallel()
	for _, w := range ways() {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			a := testconsul.New(t, nil)
			v := follow(t, w.options(a))
			v.wantProblem(t, "cannot be reached")
			if v.isSynced() {
				t.Error("a full batch of nothing")
			}
			a.Start()
			c := newCatalog(t, a, "")
			c.put("web-1", "10.0.0.1", 80, "passing")
			v.has(t, "web.service.consul", "10.0.0.1:80 healthy")
			v.wantProblem(t, "")
		})
	}
}

// After a snapshot was restored, when Consul's index goes backwards, the services are as it has
// them, and changes arrive.
func TestRestored(t *testing.T) {
	t.Parallel()
	for _, w := range ways() {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			a := testconsul.Start(t, nil)
			c := newCatalog(t, a, "")
			c.put("web-1", "10.0.0.1", 80, "passing")
			c.put("gone-1", "10.0.0.5", 80, "passing")
			c.others()
			v := follow(t, w.options(a))
			v.has(t, "web.service.consul", "10.0.0.1:80 healthy")
			saved, _, err := c.c.Snapshot().Save(nil)
			if err != nil {
				t.Fatal(err)
			}
			raw, err := io.ReadAll(saved)
			if err != nil {
				t.Fatal(err)
			}
			if err := saved.Close(); err != nil {
				t.Fatal(err)
			}
			c.remove("gone-1")
			c.put("new-1", "10.0.0.6", 80, "passing")
			for range 20 { // the index runs ahead
				c.health("web-1", "critical")
				c.health("web-1", "passing")
			}
			c.health("web-1", "critical")
			v.has(t, "web.service.consul", "10.0.0.1:80 unhealthy")
			v.has(t, "new.service.consul", "10.0.0.6:80 healthy")
			v.until(t, "gone is gone", func() bool { return v.endpoints("gone.service.consul") == nil })

			if err := c.c.Snapshot().Restore(nil, bytes.NewReader(raw)); err != nil {
				t.Fatal(err)
			}
			v.has(t, "web.service.consul", "10.0.0.1:80 healthy")
			v.has(t, "gone.service.consul", "10.0.0.5:80 healthy")
			v.until(t, "new is gone", func() bool { return v.endpoints("new.service.consul") == nil })
			c.put("new-1", "10.0.0.7", 80, "passing")
			v.has(t, "new.service.consul", "10.0.0.7:80 healthy")
			c.health("web-1", "critical")
			v.has(t, "web.service.consul", "10.0.0.1:80 unhealthy")
			c.put("gone-1", "10.0.0.7", 81, "passing")
			v.has(t, "gone.service.consul", "10.0.0.7:81 healthy")
			v.wantProblem(t, "")
		})
	}
}

// management is the token that may do everything in the tests' agents.
const management = "6d2f7f3a-8a4b-4d5c-9b1e-2f3a4b5c6d7e"

// reader makes a token that may read what a source needs.
func (c catalog) reader() (accessor, secret string) {
	c.t.Helper()
	return c.token("reader", `node_prefix "" { policy = "read" } service_prefix "" { policy = "read" }`)
}

// token makes a token with a policy of that name, which has these rules.
func (c catalog) token(name, rules string) (accessor, secret string) {
	c.t.Helper()
	for end := time.Now().Add(waitTime); ; time.Sleep(50 * time.Millisecond) {
		p, _, err := c.c.ACL().PolicyReadByName(name, nil)
		if err == nil && p == nil {
			_, _, err = c.c.ACL().PolicyCreate(&api.ACLPolicy{Name: name, Rules: rules}, nil)
		}
		var token *api.ACLToken
		if err == nil {
			token, _, err = c.c.ACL().TokenCreate(&api.ACLToken{Policies: []*api.ACLTokenPolicyLink{{Name: name}}}, nil)
		}
		if err == nil {
			return token.AccessorID, token.SecretID
		}
		if time.Now().After(end) { // the first tokens of an agent come to be after it has a leader
			c.t.Fatal(err)
		}
	}
}

func (c catalog) revoke(accessor string) {
	c.t.Helper()
	if _, err := c.c.ACL().TokenDelete(accessor, nil); err != nil {
		c.t.Fatal(err)
	}
}

// A token may be replaced at any time; one that is refused, or a file without one, takes nothing
// away.
func TestToken(t *testing.T) {
	t.Parallel()
	for _, w := range ways() {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			a := testconsul.Start(t, map[string]any{"acl": map[string]any{"enabled": true, "default_policy": "deny",
				"tokens": map[string]any{"initial_management": management}}})
			c := newCatalog(t, a, management)
			id, token := c.reader()
			c.put("web-1", "10.0.0.1", 80, "passing")
			c.others()
			file := filepath.Join(t.TempDir(), "token")
			write := func(token string) {
				t.Helper()
				if err := os.WriteFile(file+".new", []byte(token), 0o600); err != nil {
					t.Fatal(err)
				}
				if err := os.Rename(file+".new", file); err != nil {
					t.Fatal(err)
				}
			}
			write(token + "\n")
			o := w.options(a)
			o.TokenFile = file
			v := follow(t, o)
			v.has(t, "web.service.consul", "10.0.0.1:80 healthy")

			next, token := c.reader()
			write(token)
			c.revoke(id)
			c.health("web-1", "critical")
			v.has(t, "web.service.consul", "10.0.0.1:80 unhealthy")
			c.put("late-1", "10.0.0.2", 80, "passing")
			v.has(t, "late.service.consul", "10.0.0.2:80 healthy")
			v.wantProblem(t, "")

			_, before := v.said()
			c.revoke(next)
			c.put("later-1", "10.0.0.3", 80, "passing") // which wakes queries that wait
			v.wantProblem(t, "Consul refuses the token (403")
			write("\n")
			v.wantProblem(t, "has no token")
			if _, after := v.said(); after != before {
				t.Errorf("%d updates because of a token", after-before)
			}
			_, token = c.reader()
			write(token)
			v.has(t, "later.service.consul", "10.0.0.3:80 healthy")
			v.wantProblem(t, "")
		})
	}
}

// Over plain HTTP, more services than are watched at once are polled, within Consul's limit of
// connections.
func TestManyOverPlainHTTP(t *testing.T) {
	t.Parallel()
	a := testconsul.Start(t, nil)
	c := newCatalog(t, a, "")
	const services = 250
	for i := range services {
		c.put(fmt.Sprintf("many%d-1", i), "10.0.0.1", 80, "passing")
	}
	v := follow(t, consul.Options{Address: "http://" + a.Address})
	v.synced(t)
	v.wantProblem(t, "use an https address")
	for _, status := range []string{"critical", "passing"} {
		for i := range services {
			c.health(fmt.Sprintf("many%d-1", i), status)
		}
		for i := range services {
			v.has(t, fmt.Sprintf("many%d.service.consul", i), "10.0.0.1:80 "+map[string]string{"critical": "unhealthy",
				"passing": "healthy"}[status])
		}
	}
	v.inTouch(t)
}
