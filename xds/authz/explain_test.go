package authz

import (
	"net/netip"
	"strings"
	"testing"

	mesh "istio.io/api/mesh/v1alpha1"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/spiffe"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
)

// explained is a mesh of one service with two workloads, under policies in YAML.
func explained(t *testing.T, policies string, trust *push.Trust) *push.Context {
	t.Helper()
	return explainedIn(t, config.DefaultMesh(), policies, trust)
}

// explainedIn is explained with the mesh's settings.
func explainedIn(t *testing.T, m *mesh.MeshConfig, policies string, trust *push.Trust) *push.Context {
	t.Helper()
	judge := func(port uint32) *mesh.MeshConfig_ExtensionProvider_EnvoyExtAuthzHttp {
		return &mesh.MeshConfig_ExtensionProvider_EnvoyExtAuthzHttp{
			EnvoyExtAuthzHttp: &mesh.MeshConfig_ExtensionProvider_EnvoyExternalAuthorizationHttpProvider{Service: "web.example", Port: port},
		}
	}
	m.ExtensionProviders = []*mesh.MeshConfig_ExtensionProvider{{Name: "judge", Provider: judge(80)},
		{Name: "moved", Provider: judge(81)}, {Name: "logs"}}
	in := push.Inputs{Mesh: &push.Mesh{Config: m, Domain: "cluster.local"}, Trust: trust}
	key := registry.Key{Host: "web.example", Namespace: "shop"}
	in.Services = in.Services.With(key, &registry.Service{Key: key, Ports: []registry.Port{
		{Number: 80, Name: "http", Protocol: registry.HTTP, TargetPort: 8080}, {Number: 90, Name: "tcp", Protocol: registry.TCP},
	}})
	in.Endpoints = in.Endpoints.With(key, &registry.EndpointList{Items: []registry.Endpoint{
		{Address: "10.0.0.1", Namespace: "shop", Workload: "web-1", ServiceAccount: "web", Labels: map[string]string{"app": "web"}, TLSMode: "istio"},
		{Address: "10.0.0.2", Namespace: "shop", Workload: "web-2", ServiceAccount: "web", Labels: map[string]string{"app": "other"}},
	}})
	result := config.Parse("p.yaml", []byte(policies))
	if feed.Errors(result.Problems) > 0 {
		t.Fatal(result.Problems)
	}
	for _, o := range result.Objects {
		in.Objects = in.Objects.With(o.Key, o)
	}
	return push.Build(nil, in)
}

func policyText(name, spec string) string {
	return "---\napiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {name: " + name + ", namespace: shop}\nspec: " + spec + "\n"
}

// A verdict names what decides, and says when that is unknown.
func TestExplain(t *testing.T) {
	t.Parallel()
	deny := policyText("d", `{action: DENY, selector: {matchLabels: {app: web}}, rules: [{from: [{source: {namespaces: [bad]}}], to: [{operation: {paths: ["/admin*"]}}]}]}`)
	allow := policyText("a", `{selector: {matchLabels: {app: web}}, rules: [{from: [{source: {principals: ["*"]}}]}]}`)
	ask := policyText("c", `{action: CUSTOM, provider: {name: judge}, rules: [{to: [{operation: {ports: ["8080"]}}]}]}`)
	nobody := policyText("c", `{action: CUSTOM, provider: {name: nobody}, rules: [{}]}`)
	tried := strings.Replace(policyText("t", `{action: DENY, rules: [{}]}`), "namespace: shop",
		`namespace: shop, annotations: {istio.io/dry-run: "true"}`, 1)
	for name, tc := range map[string]struct {
		policies, from, to, path string
		trust                    *push.Trust
		want                     Verdict
		reason                   string
	}{
		"no policies":       {"", "shop/a", "web.example:80", "/", nil, Allowed, "no policy denies it"},
		"denied":            {deny, "bad/a", "web.example:80", "/admin", nil, Denied, "rule 0 of AuthorizationPolicy shop/d denies it"},
		"not denied":        {deny, "shop/a", "web.example:80", "/admin", nil, Allowed, "no policy denies it"},
		"path not known":    {deny, "bad/a", "web.example:80", "", nil, Depends, "may deny it: the path is unknown"},
		"tcp denies more":   {deny, "bad/a", "web.example:90", "", nil, Denied, "denies it"},
		"allowed":           {deny + allow, "shop/a", "web.example:80", "/", nil, Allowed, "rule 0 of AuthorizationPolicy shop/a allows it"},
		"deny before allow": {deny + allow, "bad/a", "web.example:80", "/admin", nil, Denied, "shop/d denies it"},
		"nobody allowed":    {allow, "anonymous", "web.example:80", "/", nil, Denied, "none of them matches"},
		"denied anyway":     {deny + allow, "anonymous", "web.example:80", "", nil, Denied, "none of them matches"},
		"asked":             {ask, "shop/a", "web.example:80", "/", nil, Depends, "the provider of rule 0 of AuthorizationPolicy shop/c decides"},
		"not asked":         {ask, "shop/a", "web.example:90", "/", nil, Allowed, "no policy denies it"},
		"nobody to ask":     {nobody, "shop/a", "web.example:80", "/", nil, Denied, "cannot be asked, so what it matches is denied"},
		"only tried":        {tried, "shop/a", "web.example:80", "/", nil, Allowed, "no policy denies it"},
		"revoked":           {allow, "shop/a", "web.example:80", "/", &push.Trust{Identities: []string{"spiffe://cluster.local/ns/shop/sa/a"}}, Denied, "is revoked"},
		"not revoked":       {allow, "shop/b", "web.example:80", "/", &push.Trust{Identities: []string{"spiffe://cluster.local/ns/shop/sa/a"}}, Allowed, "allows it"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := explained(t, tc.policies, tc.trust)
			from, err := Caller(c, tc.from)
			if err != nil {
				t.Fatal(err)
			}
			all := Explain(c, Request{From: from, Method: "GET", Path: tc.path}, tc.to)
			if len(all) != 2 || all[0].Name() != "shop/web-1" || all[1].Name() != "shop/web-2" {
				t.Fatalf("targets are %+v", all)
			}
			if got := all[0]; got.Verdict != tc.want || !strings.Contains(got.Reason, tc.reason) {
				t.Errorf("got %s: %s; want %s: %s", got.Verdict, got.Reason, tc.want, tc.reason)
			}
		})
	}
}

// Invalid hosts are denied whatever policies say.
func TestExplainHost(t *testing.T) {
	t.Parallel()
	c := explained(t, "", nil)
	for host, want := range map[string]Verdict{
		"web.example.:80": Allowed, "admin.test..": Denied, "admin.test.:8.": Denied, "user@web.example": Denied,
	} {
		got := Explain(c, Request{Method: "GET", Path: "/", Host: host}, "web.example:80")[0]
		if got.Verdict != want || want == Denied && !strings.Contains(got.Reason, "invalid Host header") {
			t.Errorf("%s: got %s: %s, want %s", host, got.Verdict, got.Reason, want)
		}
	}
}

// What PeerAuthentication closes is denied before any policy is checked. Where it disables mutual
// TLS nobody has an identity.
func TestExplainPeers(t *testing.T) {
	t.Parallel()
	peers := func(name, namespace, spec string) string {
		return "---\napiVersion: security.istio.io/v1\nkind: PeerAuthentication\nmetadata: {name: " + name + ", namespace: " + namespace + "}\nspec: " + spec + "\n"
	}
	strict, off := peers("closed", "shop", "{mtls: {mode: STRICT}}"), peers("off", "shop", "{mtls: {mode: DISABLE}}")
	open8080 := peers("web", "shop",
		"{selector: {matchLabels: {app: web}}, mtls: {mode: STRICT}, portLevelMtls: {8080: {mode: PERMISSIVE}}}")
	somebody := policyText("a", `{rules: [{from: [{source: {principals: ["*"]}}]}]}`)
	for name, tc := range map[string]struct {
		policies, from, to string
		want               Verdict
		reason             string
	}{
		"nobody under STRICT":           {strict, "anonymous", "web.example:80", Denied, "PeerAuthentication shop/closed is STRICT"},
		"for the whole mesh":            {peers("all", "istio-system", "{mtls: {mode: STRICT}}"), "anonymous", "web.example:80", Denied, "istio-system/all is STRICT"},
		"somebody under STRICT":         {strict, "shop/a", "web.example:80", Allowed, "no policy denies it"},
		"nobody under PERMISSIVE":       {peers("p", "shop", "{mtls: {mode: PERMISSIVE}}"), "anonymous", "web.example:80", Allowed, "no policy denies it"},
		"a port that is open":           {open8080, "anonymous", "web.example:80", Allowed, "no policy denies it"},
		"beside it":                     {open8080, "anonymous", "web.example:90", Denied, "shop/web is STRICT"},
		"nobody under DISABLE":          {off + somebody, "anonymous", "web.example:80", Denied, "none of them matches"},
		"somebody is nobody":            {off + somebody, "shop/a", "web.example:80", Denied, "shop/off disables mutual TLS"},
		"of whom nothing is asked":      {off, "shop/a", "web.example:80", Allowed, "so the caller has no identity"},
		"of another domain":             {strict, "partner.example/ns/a/sa/b", "web.example:80", Denied, "the trust domain partner.example are refused in the handshake: the mesh takes those of cluster.local"},
		"the same under PERMISSIVE":     {somebody, "partner.example/ns/a/sa/b", "web.example:80", Denied, "in the handshake"},
		"somebody of another authority": {off + policyText("a", `{rules: [{from: [{source: {principals: [partner.example/ns/a/sa/b]}}]}]}`), "partner.example/ns/a/sa/b", "web.example:80", Allowed, "allows it"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := explained(t, tc.policies, nil)
			from, err := Caller(c, tc.from)
			if err != nil {
				t.Fatal(err)
			}
			all := Explain(c, Request{From: from, Method: "GET", Path: "/"}, tc.to)
			if len(all) != 2 || all[0].Verdict != tc.want || !strings.Contains(all[0].Reason, tc.reason) {
				t.Errorf("got %+v; want %s: %s", all, tc.want, tc.reason)
			}
		})
	}
	c := explained(t, open8080, nil)
	scope := c.Scope(c.Classify(Target{Namespace: "shop", labels: map[string]string{"app": "web"}}.Node()))
	if got := Judge(scope, Request{}); got.Verdict != Depends ||
		!strings.Contains(got.Reason, "the port is unknown") {
		t.Errorf("at a port that is not known: %+v", got)
	}
	gateway := *scope
	gateway.Type = push.Router
	if got := Judge(&gateway, Request{Port: 90}); got.Verdict != Allowed {
		t.Errorf("at a gateway: %+v", got)
	}
}

// The steps are the policies in the order in which they decide, and one of them decides.
func TestExplainSteps(t *testing.T) {
	t.Parallel()
	c := explained(t, policyText("a",
		`{rules: [{to: [{operation: {methods: [PUT]}}]}, {to: [{operation: {methods: [GET]}}]}]}`)+
		policyText("d", `{action: DENY, rules: [{from: [{source: {namespaces: [bad]}}]}]}`), nil)
	steps := Explain(c, Request{From: spiffe.ID{TrustDomain: "cluster.local",
		Namespace: "shop", ServiceAccount: "a"}, Method: "GET"}, "web.example:80")[0].Steps
	if len(steps) != 2 || steps[0].Action != "DENY" || steps[0].Rule != -1 || steps[0].Decides ||
		steps[0].Why != "the caller's identity does not match" ||
		steps[1].Action != "ALLOW" || steps[1].Rule != 1 || !steps[1].Decides || steps[1].Why != "" {
		t.Errorf("steps are %+v", steps)
	}
}

// A target is a service's port, a workload by its name, its service account or its address, each
// port once.
func TestTargets(t *testing.T) {
	t.Parallel()
	c := explained(t, "", nil)
	for to, want := range map[string]string{
		"web.example":    "web-1:90 web-1:8080 web-2:90 web-2:8080",
		"WEB.example:80": "web-1:8080 web-2:8080",
		"web.example:1":  "",
		// A port of the service comes first, then one that its workloads listen at.
		"web.example:8080": "web-1:8080 web-2:8080",
		"shop/web-1":       "web-1:90 web-1:8080",
		"shop/web":         "web-1:90 web-1:8080 web-2:90 web-2:8080",
		"shop/web:90":      "web-1:90 web-2:90",
		"other/web":        "",
		"10.0.0.2":         "web-2:90 web-2:8080",
		"10.0.0.2:8080":    "web-2:8080",
		"shop/":            "",
		"":                 "",
	} {
		got := ""
		for _, x := range Targets(c, to, 0) {
			got += " " + x.Workload + ":" + itoa(x.Port)
		}
		if strings.TrimSpace(got) != want {
			t.Errorf("%q: got %q, want %q", to, got, want)
		}
	}
}

func itoa(n uint32) string {
	return netip.AddrPortFrom(netip.IPv4Unspecified(), uint16(n)).String()[len("0.0.0.0:"):]
}

// A caller is an identity in one of its forms; anything else is refused with what to write.
func TestCaller(t *testing.T) {
	t.Parallel()
	c := explained(t, "", nil)
	for text, want := range map[string]string{
		"shop/web": "spiffe://cluster.local/ns/shop/sa/web", "anonymous": "", "td/ns/a/sa/b": "spiffe://td/ns/a/sa/b", "spiffe://td/ns/a/sa/b": "spiffe://td/ns/a/sa/b",
	} {
		if got, err := Caller(c, text); err != nil || got.String() != want {
			t.Errorf("%q: got %q, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "web", "a/b/c", "a b/c", "spiffe://td"} {
		if got, err := Caller(c, text); err == nil {
			t.Errorf("%q is %v", text, got)
		}
	}
}
