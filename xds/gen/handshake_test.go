package gen

import (
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	networkrbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/rbac/v3"
	connectionstatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/set_filter_state/v3"
	"google.golang.org/protobuf/types/known/structpb"
	security "istio.io/api/security/v1beta1"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/spiffe"
	"github.com/ashore-mesh/ashore/push"
)

// celModel does with a connection what Envoy's CEL does: a condition on what the connection has not
// is an error, which only what decides without it absorbs.
type celModel struct {
	t    testing.TB
	call policyCall
}

// holds evaluates a condition; false in known: it is an error.
func (m celModel) holds(e celExpr) (holds, known bool) {
	switch e.op {
	case celFalse, celTrue:
		return e.op == celTrue, true
	case celNot:
		h, k := m.holds(e.operands[0])
		return !h, k
	case celAnd, celOr:
		known = true
		for _, o := range e.operands {
			switch h, k := m.holds(o); {
			case k && h == (e.op == celOr):
				return h, true
			case !k:
				known = false
			}
		}
		return e.op == celAnd, known
	case celMutual:
		return m.call.From != (spiffe.ID{}), true
	case celPort:
		return int(m.call.Port) == e.number, true
	}
	v, ok := m.attribute(e.attribute)
	switch e.op {
	case celIn:
		return slices.Contains(e.values, v), ok
	case celStarts:
		return strings.HasPrefix(v, e.values[0]), ok
	case celEnds:
		return strings.HasSuffix(v, e.values[0]), ok
	case celHas:
		return strings.Contains(v, e.values[0]), ok
	case celLonger:
		return len(v) > e.number, ok
	}
	m.t.Fatalf("no operator %d", e.op)
	return false, false
}

func (m celModel) attribute(name string) (string, bool) {
	switch name {
	case callerIdentity:
		return m.call.From.String(), m.call.From != (spiffe.ID{})
	case callerCertificate:
		return m.call.Certificate, m.call.Certificate != ""
	case callerAddress:
		return m.call.Source.String() + ":40000", true
	case calledAddress:
		return m.call.Destination.String() + ":80", true
	case calledName:
		return m.call.ServerName, m.call.ServerName != ""
	}
	m.t.Fatalf("no attribute %q", name)
	return "", false
}

// refusedEarly counts the connections that are refused at the handshake, and fails when one is that
// the filters of connections let through.
func refusedEarly(t testing.TB, r policyMaker, calls int) (early, refused int) {
	t.Helper()
	sc := policyScope(r.policies())
	rules := map[string]*rbacv3.RBAC{}
	for name, m := range AuthorizationFilters(sc, true) {
		if f, ok := m.(*networkrbacv3.RBAC); ok {
			rules[name] = f.Rules
		}
	}
	conditions := append(surelyDenied(rules[filterDeny]), surelyNotAllowed(rules[filterAllow])...)
	for range calls {
		call := r.anyCall()
		call.TCP, call.Remote = true, call.Source
		if r.IntN(4) == 0 {
			call.ServerName = ""
		}
		passes := call.passes(t, sc)
		now := slices.ContainsFunc(conditions, func(e celExpr) bool {
			holds, known := celModel{t, call}.holds(e)
			return holds && known
		})
		if now && passes {
			t.Fatalf("refused at the handshake alone\ncall: %+v\npolicies: %v\nconditions: %v", call, specs(sc),
				conditions)
		}
		if now {
			early++
		}
		if !passes {
			refused++
		}
	}
	return early, refused
}

// What is refused at the handshake the policies refuse too; and it is most of that.
func TestHandshakeRefusesNothingElse(t *testing.T) {
	t.Parallel()
	early, refused := 0, 0
	for seed := range uint64(400) {
		e, r := refusedEarly(t, policyMaker{rand.New(rand.NewPCG(seed, 7)), seed%2 == 1}, 20)
		early, refused = early+e, refused+r
	}
	if early*4 < refused*3 {
		t.Errorf("%d of %d connections that policies refuse are refused at the handshake", early, refused)
	}
	t.Logf("%d of %d connections that policies refuse are refused at the handshake", early, refused)
}

// FuzzHandshake is the same for the fuzzer.
func FuzzHandshake(f *testing.F) {
	f.Add(uint64(1), true)
	f.Fuzz(func(t *testing.T, seed uint64, odd bool) {
		refusedEarly(t, policyMaker{rand.New(rand.NewPCG(seed, 8)), odd}, 20)
	})
}

// The conditions of a rule as Envoy reads them.
func TestHandshakeConditions(t *testing.T) {
	t.Parallel()
	const mutual, id = "connection.mtls && ", "connection.uri_san_peer_certificate"
	from := func(s *security.Source) *security.Rule {
		return &security.Rule{From: []*security.Rule_From{{Source: s}}}
	}
	to := func(o *security.Operation) *security.Rule {
		return &security.Rule{To: []*security.Rule_To{{Operation: o}}}
	}
	when := func(key, value string) *security.Rule {
		return &security.Rule{When: []*security.Condition{{Key: key, Values: []string{value}}}}
	}
	for _, c := range []struct {
		name        string
		rule        *security.Rule
		deny, allow string
	}{
		{"anybody", &security.Rule{}, "true", ""},
		{"a principal", from(&security.Source{Principals: []string{"other/ns/a/sa/x"}}),
			"(" + mutual + "(" + id + " in ['spiffe://other/ns/a/sa/x']))", "!(" + mutual + "(" + id + " in ['spiffe://other/ns/a/sa/x']))"},
		{"any principal", from(&security.Source{Principals: []string{"*"}}),
			"(" + mutual + "(" + id + ".size() > 0))",
			"!(" + mutual + "(" + id + ".startsWith('spiffe://td/') || " + id + ".startsWith('spiffe://alias/')))"},
		{"nobody", from(&security.Source{NotPrincipals: []string{"*"}}),
			"!(" + mutual + "(" + id + ".startsWith('spiffe://td/') || " + id + ".startsWith('spiffe://alias/')))", "(" + mutual + "(" + id + ".size() > 0))"},
		{"a namespace", from(&security.Source{Namespaces: []string{"a"}}),
			"(" + mutual + id + ".contains('/ns/a/'))",
			"!(" + mutual + "(" + id + ".startsWith('spiffe://td/ns/a/') || " + id + ".startsWith('spiffe://alias/ns/a/')))"},
		{"a subnet", from(&security.Source{IpBlocks: []string{"10.2.0.0/16"}}), "source.address.startsWith('10.2.')", "!source.address.startsWith('10.2.')"},
		{"an address", from(&security.Source{IpBlocks: []string{"10.2.0.1"}}), "source.address.startsWith('10.2.0.1:')", "!source.address.startsWith('10.2.0.1:')"},
		{"a subnet within a number", from(&security.Source{IpBlocks: []string{"10.2.0.0/20"}}), "", ""},
		{"another port", to(&security.Operation{NotPorts: []string{"80"}}), "!(destination.port == 80)", "(destination.port == 80)"},
		{"a server name", when("connection.sni", "*.example"), "connection.requested_server_name.endsWith('.example')", "!connection.requested_server_name.endsWith('.example')"},
		{"what needs escapes", when("connection.sni", "a')%b"), "", ""},
		{"requests", to(&security.Operation{Methods: []string{"GET"}}), "true", "true"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for action, want := range map[security.AuthorizationPolicy_Action]string{security.AuthorizationPolicy_DENY: c.deny, security.AuthorizationPolicy_ALLOW: c.allow} {
				o := &config.Object{Key: config.Key{Namespace: "a", Name: "p"},
					Spec: &security.AuthorizationPolicy{Action: action, Rules: []*security.Rule{c.rule}}}
				got := handshakeConditions(t, policyScope([]*config.Object{o}))
				if want != "" {
					want = "%CEL(" + want + " ? 'refused' : '')%"
				}
				if got := strings.Join(got, "\n"); got != want {
					t.Errorf("%s:\n got %s\nwant %s", action, got, want)
				}
			}
		})
	}
}

// handshakeConditions are those that a proxy is sent.
func handshakeConditions(t *testing.T, sc *push.Scope) (out []string) {
	t.Helper()
	for name, f := range decoded[*corev3.TypedExtensionConfig](t, New().Set(ExtensionConfigType, sc)) {
		if !strings.HasSuffix(name, ofHandshakes) {
			continue
		}
		c := &connectionstatev3.Config{}
		if err := f.TypedConfig.UnmarshalTo(c); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, v := range c.OnDownstreamTlsHandshake {
			out = append(out, v.GetFormatString().GetTextFormatSource().GetInlineString())
		}
	}
	return out
}

// Many who are revoked are told a few at a time: Envoy bounds the length of a condition.
func TestHandshakeOfManyRevoked(t *testing.T) {
	t.Parallel()
	sc := policyScope(nil)
	sc.Trust = &push.Trust{Certificates: []string{strings.Repeat("ab", 32)}}
	for i := range 1200 {
		sc.Trust.Identities = append(sc.Trust.Identities, spiffe.ID{TrustDomain: "td",
			Namespace: strings.Repeat("n", 63), ServiceAccount: strings.Repeat("s", 1+i%60)}.String())
	}
	got := handshakeConditions(t, sc)
	if len(got) != 4 || !strings.Contains(strings.Join(got, "\n"),
		"(connection.sha256_peer_certificate_digest in ['abab") {
		t.Errorf("there are %d conditions: %.200v", len(got), got)
	}
	for _, c := range got {
		if len(c) > 100_000 {
			t.Errorf("a condition has %d characters", len(c))
		}
	}
}

// The shapes of a regular expression and the expression itself match the same texts, or the bounds
// enclose it.
func TestShapesOfRegularExpressions(t *testing.T) {
	t.Parallel()
	texts := []string{"", "a", "ab", "aab", "abb", "a/b", "x/a/b", "a/b/y", "x/a/b/y", "b", "aXb", "ba", "cb", "ac",
		"a.b", "A"}
	for regex, exact := range map[string]bool{
		"a": true, "a.*": true, "a.+": true, ".*b": true, ".+b": true, "a.*b": true, "a.+b": true, ".*a.*": true, "(?:a|c)b": true, "a(?:b|c)?": true,
		".*/a/.*": true, ".+": true, ".*": true, `a\.b`: true, "a(.+/|)b": true, "(?:ab|aX).*": true,
		"a.*b.*c": false, ".+a.+": false, "a[bc]": true, "a[^/]*": false, "(?i)a": false, "a{2,5}b": false, "(": false, "a.*X.*b": false,
	} {
		b := joinBounds(one, shapesOf(regex), func(s textShape) celBounds { return s.bounds(calledName) })
		whole, err := regexp.Compile("^(?:" + regex + ")$")
		for _, v := range texts {
			matches := err == nil && whole.MatchString(v)
			surely, maybe := evaluate(b.surely, v), evaluate(b.maybe, v)
			if surely && !matches && err == nil || matches && !maybe || exact &&
				(surely != matches || maybe != matches) {
				t.Errorf("%q matches %q: %v; surely %v, maybe %v", regex, v, matches, surely, maybe)
			}
		}
	}
}

// evaluate is a condition on a text alone, which may be empty.
func evaluate(e celExpr, v string) bool {
	switch e.op {
	case celAnd:
		return !slices.ContainsFunc(e.operands, func(o celExpr) bool { return !evaluate(o, v) })
	case celOr:
		return slices.ContainsFunc(e.operands, func(o celExpr) bool { return evaluate(o, v) })
	case celIn:
		return slices.Contains(e.values, v)
	case celStarts:
		return strings.HasPrefix(v, e.values[0])
	case celEnds:
		return strings.HasSuffix(v, e.values[0])
	case celHas:
		return strings.Contains(v, e.values[0])
	case celLonger:
		return len(v) > e.number
	}
	return e.op == celTrue
}

// A cluster of the workload has the socket for who is refused, and no endpoint asks for it.
func TestRefusalSocket(t *testing.T) {
	t.Parallel()
	c := workloadSpec{port: 3306, mesh: policyScope(nil).Mesh, to: address{path: "/run/db.sock"},
		caps: capStock}.cluster("inbound|3306||")
	if len(c.TransportSocketMatches) != 1 || c.TransportSocketMatches[0].Name != "refused" ||
		c.TransportSocketMatcher == nil {
		t.Fatalf("the cluster has no socket for who is refused: %v", c)
	}
	if got := c.TransportSocketMatches[0].Match; len(got.GetFields()) == 0 {
		t.Error("without the choice by state every endpoint has the socket")
	} else if _, ok := got.Fields[refusedState].GetKind().(*structpb.Value_BoolValue); !ok {
		t.Errorf("the socket is for %v", got)
	}
	if c := (workloadSpec{port: 3306, mesh: policyScope(nil).Mesh,
		to: address{path: "/run/db.sock"}}).cluster("inbound|3306||"); c.TransportSocketMatcher != nil {
		t.Error("a client that does not know the choice by state gets it")
	}
}
