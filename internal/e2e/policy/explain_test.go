package policy

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/ashore-mesh/ashore/internal/spiffe"
	"github.com/ashore-mesh/ashore/xds/authz"
)

// judge compares the answer to a call with its explanation, as far as that is definite: whether a
// provider lets a call pass, what a token says, and which certificate is revoked is not.
func (w *world) judge(t *testing.T, tb *table, line string) {
	t.Helper()
	what, want, _ := strings.Cut(line, " -> ")
	fields := strings.Fields(what)
	call := w.known(t, tb, fields)
	if call.From != (spiffe.ID{}) && !slices.Contains(tb.scope.Mesh.TrustDomains(), call.From.TrustDomain) {
		return // a mesh refuses it in the handshake, and the Envoys of these tests do not
	}
	got := authz.Judge(tb.scope, call)
	if got.Verdict == authz.Depends || tb.scope.RequestAuthentication.Len() > 0 || w.trust(t, tb).Certificates != nil {
		return
	}
	if passes := want == "open" || strings.HasPrefix(want, "200"); passes != (got.Verdict == authz.Allowed) {
		t.Errorf("%s: explained as %s: %s", line, got.Verdict, got.Reason)
	}
}

// known is what is known of a call of a table.
func (w *world) known(t *testing.T, tb *table, fields []string) authz.Request {
	t.Helper()
	who, _, _ := strings.Cut(fields[0], "@")
	c := authz.Request{Destination: netip.MustParseAddr(address), Port: tb.http, TCP: fields[1] == "tcp"}
	if isTLS(who) {
		c.From = identity(t, who)
	}
	if c.TCP {
		c.Port = tb.tcp
	} else {
		c.Method, c.Host, c.Path = fields[1], fields[2], fields[3]
	}
	return c
}
