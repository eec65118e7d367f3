package policy

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/ashore-mesh/ashore/internal/spiffe"
	"github.com/ashore-mesh/ashore/xds/authz"
	"github.com/ashore-mesh/ashore/xds/gen/access"
)

// judge compares the answer to a call with its explanation, as far as that is definite: whether a
// provider lets a call pass, and what a token says, is not.
func (w *world) judge(t *testing.T, tb *table, line string) {
	t.Helper()
	what, want, _ := strings.Cut(line, " -> ")
	fields := strings.Fields(what)
	call := w.known(t, tb, fields)
	if call.From != (spiffe.ID{}) && !slices.Contains(tb.scope.Mesh.TrustDomains(), call.From.TrustDomain) {
		return // a mesh refuses it in the handshake, and the Envoys of these tests do not
	}
	got := authz.Judge(tb.scope, access.Filters, call)
	if got.Verdict == authz.Depends || tb.scope.RequestAuthentication.Len() > 0 {
		return
	}
	if passes := want == "open" || strings.HasPrefix(want, "200"); passes != (got.Verdict == authz.Allowed) {
		t.Errorf("%s: explained as %s: %s", line, got.Verdict, got.Reason)
	}
}

// known is what is known of a call of a table.
func (w *world) known(t *testing.T, tb *table, fields []string) authz.Request {
	t.Helper()
	who, source, _ := strings.Cut(fields[0], "@")
	from := netip.MustParseAddr(cmp.Or(source, "127.0.0.1"))
	if source == "" {
		from = netip.MustParseAddr(address) // Linux takes the target's, of all of loopback
	}
	c := authz.Request{Source: from, Remote: from, Destination: netip.MustParseAddr(address), Port: tb.http,
		Headers: map[string][]string{}, Claims: map[string][]string{}, ServerName: "none"}
	if isTLS(who) {
		c.From, c.Certificate = identity(t, who), digest(w.certificate(t, who))
	}
	rest := fields[2:]
	if c.TCP = fields[1] == "tcp"; c.TCP {
		c.Port = tb.tcp
	} else {
		c.Method, c.Host, c.Path, rest = fields[1], fields[2], fields[3], fields[4:]
	}
	for _, f := range rest {
		switch key, value, _ := strings.Cut(f, "="); key {
		case "protocol":
		case "sni":
			c.ServerName = value
		case "x-forwarded-for":
			c.Remote = netip.MustParseAddr(value)
		default:
			c.Headers[key] = append(c.Headers[key], value)
		}
	}
	return c
}
