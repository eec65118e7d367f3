package gen

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/proto"
	mesh "istio.io/api/mesh/v1alpha1"
	security "istio.io/api/security/v1beta1"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/internal/spiffe"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/xds/gen/access"
	"github.com/ashore-mesh/ashore/xds/gen/gentest"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// policyMaker makes policies at random out of few values, so that calls meet them. odd also makes
// what validation refuses.
type policyMaker struct {
	*rand.Rand
	odd bool
}

func (r policyMaker) some(values, odd []string) []string {
	if r.odd {
		values = append(append([]string{}, values...), odd...)
	}
	if r.IntN(3) > 0 {
		return nil
	}
	out := make([]string, 1+r.IntN(2))
	for i := range out {
		out[i] = values[r.IntN(len(values))]
	}
	return out
}

func (r policyMaker) source() *security.Source {
	if r.odd && r.IntN(10) == 0 {
		return nil
	}
	principals := []string{"*", "cluster.local/ns/a/sa/x", "td/ns/a/sa/x", "alias/*", "*/sa/x", "cluster.local/ns/*",
		"other/ns/a/sa/x"}
	return &security.Source{
		Principals:    r.some(principals, []string{"", "a*b", "*a*", "spiffe://cluster.local/ns/a/sa/x"}),
		NotPrincipals: r.some(principals, []string{"", "**"}),
		RequestPrincipals: r.some([]string{"*", "i/s", "i/*", "*/s", "i/s/t", "*t", "i*"},
			[]string{"", "i", "/", "a*b", "i/"}),
		NotRequestPrincipals: r.some([]string{"*", "i/s", "i/s/*"}, []string{"", "i"}),
		Namespaces:           r.some([]string{"a", "b", "*", "*b", "a*"}, []string{""}),
		NotNamespaces:        r.some([]string{"a", "b*"}, []string{""}),
		ServiceAccounts:      r.some([]string{"x", "a/x", "b/y"}, []string{"", "*", "a/b/c", "/x"}),
		TrustDomains:         r.some([]string{"td", "*", "*d", "al*"}, []string{"", "a/b"}),
		IpBlocks: r.some([]string{"10.0.0.0/8", "10.0.0.1", "::/0"},
			[]string{"", "x", "10.0.0.0/40", "::ffff:10.0.0.1", "::ffff:10.0.0.0/104"}),
		NotIpBlocks:       r.some([]string{"10.0.0.1", "10.1.0.0/16"}, []string{"x"}),
		RemoteIpBlocks:    r.some([]string{"10.0.0.0/8", "10.0.0.2/31"}, []string{"x"}),
		NotRemoteIpBlocks: r.some([]string{"10.0.0.1"}, []string{""}),
	}
}

func (r policyMaker) operation() *security.Operation {
	if r.odd && r.IntN(10) == 0 {
		return &security.Operation{}
	}
	hosts := []string{"h.example", "*", "*.example", "h.*", "H.example:80", "[::1]"}
	paths := []string{"/", "/a", "/a/*", "*b", "*", "/{*}", "/a/{**}", "/{*}/b", "/a@", "*/b", "/a//b", "/%61/b*",
		"/a;b", "/a/**", "/a*b", "*/b*"}
	return &security.Operation{
		Hosts:      r.some(hosts, []string{"", "a*b"}),
		NotHosts:   r.some(hosts, []string{"", "*a*"}),
		Methods:    r.some([]string{"GET", "*", "P*"}, []string{"", "G*T"}),
		NotMethods: r.some([]string{"GET", "*ST"}, []string{""}),
		Paths:      r.some(paths, []string{"", "/{*}x", "/{**}/{*}", "/a?b"}),
		NotPaths:   r.some(paths, []string{"{*}"}),
		Ports:      r.some([]string{"80", "90"}, []string{"", "0", "http", "99999"}),
		NotPorts:   r.some([]string{"80"}, []string{"x"}),
	}
}

func (r policyMaker) condition() *security.Condition {
	keys := []struct {
		key    string
		values []string
	}{
		{"source.ip", []string{"10.0.0.1", "10.0.0.0/8"}}, {"remote.ip", []string{"10.0.0.2"}}, {"destination.ip", []string{"10.9.0.0/16"}},
		{"source.namespace", []string{"a"}}, {"source.principal", []string{"*/sa/x", "*"}}, {"source.serviceaccount", []string{"x"}},
		{"source.trustDomain", []string{"td"}}, {"destination.port", []string{"80"}}, {"connection.sni", []string{"h.example", "*.example"}},
		{"request.headers[X-a]", []string{"1", "*", "1*", "*1", "12"}}, {"request.auth.claims[g]", []string{"1", "*"}}, {"request.auth.claims[g][h]", []string{"1"}},
		{"request.auth.principal", []string{"*", "i/s"}}, {"request.auth.audiences", []string{"1"}}, {"request.auth.presenter", []string{"1*"}},
	}
	if r.odd {
		keys = append(keys, struct {
			key    string
			values []string
		}{[]string{"", "source.ips", "request.headers", "request.headers[", "request.auth.claims[]",
			"request.headers[a][b]", "experimental.envoy.filters.x"}[r.IntN(7)], []string{"1"}})
	}
	k := keys[r.IntN(len(keys))]
	c := &security.Condition{Key: k.key, Values: r.some(k.values, []string{""}),
		NotValues: r.some(k.values, []string{""})}
	if len(c.Values)+len(c.NotValues) == 0 && !r.odd {
		c.Values = k.values[:1]
	}
	return c
}

func (r policyMaker) rule() *security.Rule {
	if r.odd && r.IntN(20) == 0 {
		return nil
	}
	out := &security.Rule{}
	for range r.IntN(3) {
		out.From = append(out.From, &security.Rule_From{Source: r.source()})
	}
	for range r.IntN(3) {
		out.To = append(out.To, &security.Rule_To{Operation: r.operation()})
	}
	for range r.IntN(3) {
		out.When = append(out.When, r.condition())
	}
	return out
}

// policies are up to four of a namespace.
func (r policyMaker) policies() []*config.Object {
	var out []*config.Object
	for i := range 1 + r.IntN(4) {
		p := &security.AuthorizationPolicy{Action: security.AuthorizationPolicy_Action(r.IntN(4))}
		if p.Action == security.AuthorizationPolicy_CUSTOM {
			p.ActionDetail = &security.AuthorizationPolicy_Provider{Provider: &security.AuthorizationPolicy_ExtensionProvider{Name: "nobody"}}
		}
		for range r.IntN(3) {
			p.Rules = append(p.Rules, r.rule())
		}
		o := &config.Object{Key: config.Key{Kind: config.AuthorizationPolicy, Namespace: "a",
			Name: "p" + strconv.Itoa(i)}, Spec: p}
		if r.IntN(6) == 0 {
			o.Annotations = map[string]string{"istio.io/dry-run": []string{"true", "false", "x"}[r.IntN(3)]}
		}
		out = append(out, o)
	}
	return out
}

// anyCall is a call of which all is known.
func (r policyMaker) anyCall() policyCall {
	one := func(values ...string) string { return values[r.IntN(len(values))] }
	c := policyCall{
		TCP:         r.IntN(3) == 0,
		Source:      netip.MustParseAddr(one("10.0.0.1", "10.1.0.1", "192.0.2.1", "2001:db8::1")),
		Remote:      netip.MustParseAddr(one("10.0.0.1", "10.0.0.2", "192.0.2.1")),
		Destination: netip.MustParseAddr(one("10.9.0.1", "10.8.0.1")),
		Port:        []uint32{80, 90, 100}[r.IntN(3)],
		ServerName:  one("h.example", "other"),
	}
	if r.IntN(3) > 0 {
		c.From = spiffe.ID{TrustDomain: one("td", "alias", "other"), Namespace: one("a", "b", "ab"),
			ServiceAccount: one("x", "y")}
	}
	if c.TCP {
		return c
	}
	c.Method, c.Host = one("GET", "POST", "PUT"), one("h.example", "H.EXAMPLE:80", "h.example.", "h.example:90",
		"x.example", "[::1]:80", "other")
	if r.IntN(2) == 0 {
		c.Path = r.oddPath()
	} else {
		c.Path = one("/", "/a", "/a/", "/a/b", "/a/b/c", "/ab", "/a?q=1", "//b", "//a", "/a;x", "/a;x/b", "/%2Fa",
			"/a%5cb", "/x%2fa;b", "/a/*", "/a/*/c", "/a*b", "/a%2ab", "/x/b*")
	}
	c.Headers, c.Claims = map[string][]string{}, map[string][]string{}
	if r.IntN(2) == 0 {
		for range 1 + r.IntN(2) {
			c.Headers["x-a"] = append(c.Headers["x-a"], one("1", "12", "2", "2, 1", "21,3", "2,", ""))
		}
	}
	if r.IntN(2) == 0 {
		c.Claims = map[string][]string{"iss": {one("i", "i/s", "j")}, "sub": {one("s", "t", "s/t")},
			"g": {"1", one("2", "3")}, "g][h": {one("1", "2")}, "aud": {one("1", "2")}, "azp": {"12"}}
	}
	return c
}

// oddPath is a path made of what servers read in several ways.
func (r policyMaker) oddPath() string {
	parts := []string{"/", "/", "/a", "/b", "a", "b", ".", "..", ";", ";a=1", "%2f", "%2F", "%252f", "%5c", "%5C", `\`,
		"%2e", "%252E", "%3b", "%3B", "%61", "%2561", "%40", "@", "%", "%2", "*", "%2a"}
	out := "/"
	for range r.IntN(7) {
		out += parts[r.IntN(len(parts))]
	}
	return out
}

// policyScope is a scope of these policies, in a mesh of the trust domain td.
func policyScope(policies []*config.Object) *push.Scope {
	m := config.DefaultMesh()
	m.TrustDomain, m.TrustDomainAliases = "td", []string{"alias"}
	// so that calls are judged as they are
	m.PathNormalization.Normalization = mesh.MeshConfig_ProxyPathNormalization_NONE
	sc := gentest.Scope(gentest.Egress(nil))
	sc.Mesh = &push.Mesh{Config: m, Domain: "cluster.local"}
	sc.AuthorizationPolicy = new(intern.Lists[*config.Object]).Of(policies)
	return sc
}

// passes says whether the generated filters let a call pass.
func (c policyCall) passes(sc *push.Scope) bool {
	return filterJudge{c}.passes(access.Filters(sc, c.TCP))
}

// checkPolicies compares what the filters do with what the policies say, by a plain reading of
// them.
func checkPolicies(t testing.TB, r policyMaker, calls int) {
	t.Helper()
	sc := policyScope(r.policies())
	for range calls {
		call := r.anyCall()
		if passes, want := call.passes(sc), readPolicies(sc, call); passes != want {
			t.Fatalf("the filters let it pass: %v; the policies: %v\ncall: %+v\npolicies: %v", passes, want, call,
				specs(sc))
		}
	}
}

func specs(sc *push.Scope) []string {
	var out []string
	for _, o := range sc.AuthorizationPolicy.Items() {
		out = append(out, o.Spec.(*security.AuthorizationPolicy).String())
	}
	return out
}

// What proxies are sent does what the policies say, whatever they are: also those that validation
// refuses.
func TestFiltersDoWhatPoliciesSay(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		checkPolicies(t, policyMaker{rand.New(rand.NewPCG(seed, 1)), seed%2 == 1}, 20)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// FuzzPolicies is the same for the fuzzer.
func FuzzPolicies(f *testing.F) {
	f.Add(uint64(1), true)
	f.Fuzz(func(t *testing.T, seed uint64, odd bool) {
		checkPolicies(t, policyMaker{rand.New(rand.NewPCG(seed, 2)), odd}, 20)
	})
}

// A part that cannot be understood never lets a call pass that is refused without that part:
// neither in a policy that denies, nor in one that allows.
func TestOddPartsNeverWeaken(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		r := policyMaker{rand.New(rand.NewPCG(seed, 3)), false}
		before := r.policies()
		after := make([]*config.Object, len(before))
		for i, o := range before {
			c := *o
			c.Spec = proto.Clone(o.Spec)
			after[i] = &c
			p := c.Spec.(*security.AuthorizationPolicy)
			for _, rule := range p.Rules {
				rule.When = append(rule.When, &security.Condition{Key: "what.is.this", Values: []string{"x"}})
			}
		}
		good, odd := policyScope(before), policyScope(after)
		for range 20 {
			call := r.anyCall()
			if call.passes(odd) && !call.passes(good) {
				t.Fatalf("seed %d: a condition that nobody understands lets a call pass: %+v\n%v", seed, call,
					specs(odd))
			}
		}
	}
}

// A part of a policy that is emptied (null, [] or {}) is refused, and the policy stays; or no call
// passes by it that was refused before. Only {} as a whole rule, which is how a rule about
// everything is written, may let more pass.
func TestEmptiedPartsNeverWeaken(t *testing.T) {
	t.Parallel()
	accepted := 0
	for seed := range uint64(600) {
		rnd := rand.New(rand.NewPCG(seed, 5))
		r := policyMaker{rnd, false}
		before := r.policies()[:1]
		o := emptiedPolicy(t, rnd, before[0])
		if o == nil {
			continue
		}
		accepted++
		was, is := policyScope(before), policyScope([]*config.Object{o})
		for range 30 {
			call := r.anyCall()
			if call.passes(is) && !call.passes(was) {
				t.Fatalf("seed %d: an emptied part lets a call pass: %+v\n%v\n%v", seed, call, before[0].Spec, o.Spec)
			}
		}
	}
	if accepted == 0 {
		t.Error("nothing emptied was accepted: the law was not tried")
	}
}

// emptiedPolicy is a policy with a part that is emptied, as it is read; nil when it is refused, or
// was before.
func emptiedPolicy(t *testing.T, rnd *rand.Rand, o *config.Object) *config.Object {
	t.Helper()
	text, err := config.Encode([]*config.Object{o})
	if err != nil {
		t.Fatal(err)
	}
	if len(config.Parse("a.yaml", text).Objects) == 0 {
		return nil
	}
	var tree yaml.Node
	if err := yaml.Unmarshal(text, &tree); err != nil {
		t.Fatal(err)
	}
	var parts []*yaml.Node
	var walk func(n *yaml.Node, name string)
	walk = func(n *yaml.Node, name string) {
		if name != "rule" { // as a whole it is left alone
			parts = append(parts, n)
		}
		for i, c := range n.Content {
			switch {
			case n.Kind == yaml.MappingNode && i%2 == 1:
				walk(c, n.Content[i-1].Value)
			case n.Kind == yaml.SequenceNode:
				walk(c, strings.TrimSuffix(name, "s"))
			}
		}
	}
	document := tree.Content[0]
	for i := 0; i < len(document.Content); i += 2 {
		if document.Content[i].Value == "spec" {
			walk(document.Content[i+1], "spec")
		}
	}
	*parts[rnd.IntN(len(parts))] = []yaml.Node{
		{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null"}, {Kind: yaml.SequenceNode, Style: yaml.FlowStyle}, {Kind: yaml.MappingNode, Style: yaml.FlowStyle},
	}[rnd.IntN(3)]
	if text, err = yaml.Marshal(&tree); err != nil {
		t.Fatal(err)
	}
	if objects := config.Parse("a.yaml", text).Objects; len(objects) == 1 {
		return objects[0]
	}
	return nil
}

// A changed policy, provider or revocation changes no listener.
func TestPoliciesTouchNoListener(t *testing.T) {
	t.Parallel()
	g := New()
	plain := policyScope(nil)
	before := g.Set(resource.ListenerType, plain)
	if before.Shared == nil {
		t.Fatal("there are no listeners")
	}
	for seed := range uint64(50) {
		sc := *plain
		sc.AuthorizationPolicy = new(intern.Lists[*config.Object]).Of(policyMaker{rand.New(rand.NewPCG(seed, 4)),
			false}.policies())
		sc.Trust = &push.Trust{Identities: []string{"spiffe://td/ns/a/sa/x"}, Certificates: []string{"00"}}
		if got := g.Set(resource.ListenerType, &sc); got != before {
			t.Fatalf("seed %d: the listeners are others", seed)
		}
	}
}

// Equal inputs share one layer, and a policy changes only the filters that it is about.
func TestFiltersAreShared(t *testing.T) {
	t.Parallel()
	g := New()
	deny := &config.Object{Key: config.Key{Kind: config.AuthorizationPolicy, Namespace: "a", Name: "d"},
		Spec: &security.AuthorizationPolicy{
			Action: security.AuthorizationPolicy_DENY, Rules: []*security.Rule{{}},
		}}
	a, b, c := policyScope(nil), policyScope(nil), policyScope([]*config.Object{deny})
	first := g.Set(resource.ExtensionConfigType, a)
	if g.Set(resource.ExtensionConfigType, b) != first {
		t.Error("equal filters are two layers")
	}
	changed := g.Set(resource.ExtensionConfigType, c)
	for r := range changed.All() {
		was := first.Get(r.Name)
		if isDeny := slices.Contains([]string{"ashore.authz.deny", "ashore.authz.deny.tcp"},
			r.Name); (was.Version() == r.Version()) == isDeny {
			t.Errorf("%s: the same as before: %v", r.Name, was == r)
		}
	}
	if n := changed.Len(); n != 15 {
		t.Errorf("there are %d filters", n)
	}
}
