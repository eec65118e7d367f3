package analyze_test

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	mesh "istio.io/api/mesh/v1alpha1"

	"github.com/ashore-mesh/ashore/analyze"
	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/goldentest"
	"github.com/ashore-mesh/ashore/push"
)

// testCase is a mesh of some documents, and a part of each finding as finding text writes it.
type testCase struct {
	name      string
	documents []string
	want      []string
}

// check runs cases. Every finding must have a place, a text and a remedy.
func check(t *testing.T, cases []testCase) {
	t.Helper()
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			compare(t, analyze.Run(t.Context(), build(t, tc.documents...)), tc.want)
		})
	}
}

func compare(t *testing.T, got []analyze.Finding, want []string) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d findings, want %d: %s", len(got), len(want), text(got))
	}
	for i, f := range got {
		if !strings.Contains(text([]analyze.Finding{f}), want[i]) {
			t.Errorf("got  %swant %s", text([]analyze.Finding{f}), want[i])
		}
		if f.File != "mesh.yaml" || f.Line == 0 || f.Field == "" || f.Text == "" || f.Remedy == "" {
			t.Errorf("%+v has no place, text or remedy", f)
		}
	}
}

// text is findings as tests write them: "IST0101 mesh.yaml:6 VirtualService shop/r spec.hosts: text
// | remedy".
func text(list []analyze.Finding) string {
	var b strings.Builder
	for _, f := range list {
		fmt.Fprintf(&b, "%s %s:%d %s %s: %s | %s\n", f.Code, f.File, f.Line, f.Object, f.Field, f.Text, f.Remedy)
	}
	return b.String()
}

// build makes the context of a file named mesh.yaml. Nothing may be wrong with its objects by
// themselves. Later objects are younger.
func build(t testing.TB, documents ...string) *push.Context {
	t.Helper()
	var objects []*config.Object
	for part := range slices.Chunk(documents, 1000) { // a file has a largest size
		r := config.Parse("mesh.yaml", []byte(strings.Join(part, "")))
		for _, p := range r.Problems {
			t.Errorf("%v", p)
		}
		objects = append(objects, r.Objects...)
	}
	in := goldentest.Inputs(t, objects, goldentest.Counting)
	m := config.DefaultMesh()
	authorizer := &mesh.MeshConfig_ExtensionProvider_EnvoyExtAuthzHttp{
		EnvoyExtAuthzHttp: &mesh.MeshConfig_ExtensionProvider_EnvoyExternalAuthorizationHttpProvider{Service: "web.internal", Port: 80},
	}
	spans := &mesh.MeshConfig_ExtensionProvider_Zipkin{
		Zipkin: &mesh.MeshConfig_ExtensionProvider_ZipkinTracingProvider{Service: "web.internal", Port: 80},
	}
	m.ExtensionProviders = append(m.ExtensionProviders, &mesh.MeshConfig_ExtensionProvider{Name: "authorizer", Provider: authorizer},
		&mesh.MeshConfig_ExtensionProvider{Name: "spans", Provider: spans})
	in.Mesh = &push.Mesh{Config: m, Domain: "cluster.local"}
	return push.Build(nil, in)
}

// object is a document of one kind, "namespace/name", with a spec in YAML's flow style.
func object(kind config.Kind, name, spec string) string {
	group, version := "networking", "v1"
	switch kind {
	case config.ProxyConfig:
		version = "v1beta1"
	case config.AuthorizationPolicy, config.PeerAuthentication, config.RequestAuthentication:
		group = "security"
	case config.Telemetry:
		group = "telemetry"
	}
	namespace, name, _ := strings.Cut(name, "/")
	return fmt.Sprintf("apiVersion: %s.istio.io/%s\nkind: %s\nmetadata: {name: %s, namespace: %s}\nspec: {%s}\n---\n",
		group, version, kind, name, namespace, spec)
}

// service is a ServiceEntry of five lines with ports 80 and 9090 and one endpoint.
func service(name, host, more string) string {
	return object(config.ServiceEntry, name,
		fmt.Sprintf("hosts: [%q], ports: [{number: 80, name: http}, {number: 9090, name: grpc}], resolution: STATIC, location: MESH_INTERNAL, endpoints: [{address: 10.0.0.1}], %s", host, more))
}

func route(name, spec string) string { return object(config.VirtualService, name, spec) }

func rule(name, spec string) string { return object(config.DestinationRule, name, spec) }

func gateway(name, hosts string) string {
	return object(config.Gateway, name,
		"selector: {app: gw}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ["+hosts+"]}]")
}

// A run that is cancelled returns nothing.
func TestRunIsCancelled(t *testing.T) {
	t.Parallel()
	c := build(t, route("shop/r", "hosts: [x.example.com], http: [{route: [{destination: {host: nowhere}}]}]"))
	ctx, cancel := context.WithCancel(t.Context())
	if got := analyze.Run(ctx, c); len(got) != 1 {
		t.Errorf("got %v, want one finding", got)
	}
	cancel()
	if got := analyze.Run(ctx, c); got != nil {
		t.Errorf("cancelled: got %v", got)
	}
}

// Offline, what a registry could supply is information, or a warning if a host is similar to a known
// one. What only configuration can supply stays an error.
func TestOffline(t *testing.T) {
	t.Parallel()
	findings := analyze.Run(t.Context(), build(t, service("shop/web", "web.internal", ""),
		route("shop/a", "hosts: [x.example.com], http: [{route: [{destination: {host: db.service.consul}}]}]"),
		route("shop/b", "hosts: [y.example.com], http: [{route: [{destination: {host: web.internal, subset: v1}}]}]"),
		route("shop/c", "hosts: [z.example.com], gateways: [none], http: [{route: [{destination: {host: web.internal}}]}]"),
		rule("shop/d", "host: other.service.consul"), rule("shop/e", "host: wbe.internal")))
	want := map[string][2]feed.Severity{ // live and offline
		"VirtualService shop/a":  {feed.Error, analyze.Info},
		"VirtualService shop/b":  {feed.Error, feed.Error},
		"VirtualService shop/c":  {feed.Error, feed.Error},
		"DestinationRule shop/d": {feed.Error, analyze.Info},
		"DestinationRule shop/e": {feed.Error, feed.Warning},
	}
	offline := analyze.Offline(findings, false)
	if len(findings) != len(want) {
		t.Fatalf("got %s", text(findings))
	}
	for i, f := range findings {
		if got := [2]feed.Severity{f.Severity, offline[i].Severity}; got != want[f.Object] {
			t.Errorf("%s: %v, want %v", f.Object, got, want[f.Object])
		}
		certain := !strings.Contains(offline[i].Text, "unless a registry")
		if certain != (f.Severity == offline[i].Severity) {
			t.Errorf("%s %s: %s", offline[i].Severity, f.Object, offline[i].Text)
		}
	}
}

// An object that has moved in its file is reported where it is now, and no more once the cause is
// gone.
func TestFindingsFollowObjects(t *testing.T) {
	t.Parallel()
	r := route("shop/r", "hosts: [x.example.com], http: [{route: [{destination: {host: db.internal}}]}]")
	c := build(t, r)
	for _, step := range []struct {
		documents []string
		line      int // zero: nothing is found
	}{
		{[]string{r}, 1},
		{[]string{"# moved\n", r}, 2},
		{[]string{r, service("shop/db", "db.internal", "")}, 0},
	} {
		c = push.Build(c, build(t, step.documents...).Inputs())
		got := analyze.Run(t.Context(), c)
		if len(got) == 0 && step.line == 0 {
			continue
		}
		if len(got) != 1 || got[0].Line != step.line {
			t.Errorf("%q: got %v, want one in line %d", step.documents, text(got), step.line)
		}
	}
}

// The reference lists every code with its severity.
func TestReference(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/analysis.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("code.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`Code = "(\w+)"`).FindAllStringSubmatch(string(source), -1) {
		c := analyze.Code(m[1])
		severity := string(c.Severity())
		if c.FromRegistry() {
			severity += " ¹"
		}
		if want := regexp.MustCompile(fmt.Sprintf(`(?m)^\| %s \| \w+ \| %s \| `, c, severity)); !want.Match(page) {
			t.Errorf("docs/analysis.md has no row %v", want)
		}
	}
}

// BenchmarkRun analyzes a mesh in which every tenth route leads nowhere.
func BenchmarkRun(b *testing.B) {
	for _, n := range []int{1000, 10000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var documents []string
			for i := range n {
				host := fmt.Sprintf("service-%05d.shop.svc.cluster.local", i)
				to := host
				if i%10 == 0 {
					to = "x" + host
				}
				documents = append(documents, service(fmt.Sprintf("shop/s%d", i), host, ""),
					route(fmt.Sprintf("shop/r%d", i),
						fmt.Sprintf("hosts: [%s], http: [{route: [{destination: {host: %s}}]}]", host, to)),
					rule(fmt.Sprintf("shop/d%d", i), "host: "+host))
			}
			c := build(b, documents...)
			b.ReportAllocs()
			for b.Loop() {
				if got := len(analyze.Run(b.Context(), c)); got != n/10 {
					b.Fatalf("%d findings, want %d", got, n/10)
				}
			}
		})
	}
}
