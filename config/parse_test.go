package config

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	networking "istio.io/api/networking/v1alpha3"
)

// web is a ServiceEntry in YAML.
const web = `apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata:
  name: web
  namespace: shop
  labels: {team: blue}
  creationTimestamp: "2024-05-06T07:08:09Z"
spec:
  hosts: [web.shop.example]
  ports:
  - {number: 80, name: http, protocol: HTTP, targetPort: 8080}
  resolution: STATIC
  endpoints:
  - address: 10.0.0.1
    labels: {version: v1}
`

// texts are the problems of r, one line each.
func texts(r Result) []string {
	var out []string
	for _, p := range r.Problems {
		out = append(out, string(p.Severity)+": "+p.String())
	}
	return out
}

// mustParse parses text that has no error, and returns its objects.
func mustParse(t *testing.T, name, text string) []*Object {
	t.Helper()
	r := Parse(name, []byte(text))
	for _, p := range r.Problems {
		if p.Severity == "error" {
			t.Fatalf("Parse: unexpected %s", p)
		}
	}
	if r.Unread || len(r.Broken) > 0 {
		t.Fatalf("Parse: unread %v, broken %v; want neither without an error", r.Unread, r.Broken)
	}
	return r.Objects
}

func TestParseObject(t *testing.T) {
	t.Parallel()
	objects := mustParse(t, "web.yaml", "# a comment\n"+web)
	want := []*Object{{
		Key:     Key{ServiceEntry, "shop", "web"},
		Labels:  map[string]string{"team": "blue"},
		Created: time.Date(2024, 5, 6, 7, 8, 9, 0, time.UTC),
		Origin:  Origin{File: "web.yaml", Line: 2},
		Spec: &networking.ServiceEntry{
			Hosts:      []string{"web.shop.example"},
			Ports:      []*networking.ServicePort{{Number: 80, Name: "http", Protocol: "HTTP", TargetPort: 8080}},
			Resolution: networking.ServiceEntry_STATIC,
			Endpoints:  []*networking.WorkloadEntry{{Address: "10.0.0.1", Labels: map[string]string{"version": "v1"}}},
		},
	}}
	want[0].Hash = HashOf(want[0])
	if diff := cmp.Diff(want, objects, protocmp.Transform()); diff != "" {
		t.Errorf("Parse (-want +got):\n%s", diff)
	}
}

// All published versions of a kind, and both file formats, read as the same object.
func TestParseVersions(t *testing.T) {
	t.Parallel()
	want := mustParse(t, "web.yaml", web)[0]
	for _, version := range []string{"v1", "v1beta1", "v1alpha3"} {
		got := mustParse(t, "web.yaml", strings.Replace(web, "istio.io/v1", "istio.io/"+version, 1))[0]
		if got.Hash != want.Hash {
			t.Errorf("%s: hash %x, want that of v1, %x", version, got.Hash, want.Hash)
		}
	}
	const asJSON = `{"apiVersion": "networking.istio.io/v1", "kind": "ServiceEntry",
	"metadata": {"name": "web", "namespace": "shop", "labels": {"team": "blue"}, "creationTimestamp": "2024-05-06T07:08:09Z"},
	"spec": {"hosts": ["web.shop.example"], "resolution": "STATIC",
	  "ports": [{"number": 80, "name": "http", "protocol": "HTTP", "target_port": "8080"}],
	  "endpoints": [{"address": "10.0.0.1", "labels": {"version": "v1"}}]}}`
	for _, name := range []string{"web.json", "web.yaml"} {
		if got := mustParse(t, name, asJSON)[0]; got.Hash != want.Hash {
			t.Errorf("JSON in %s: hash %x, want that of YAML, %x", name, got.Hash, want.Hash)
		}
	}
}

// What has an effect changes the hash, and nothing else does.
func TestHash(t *testing.T) {
	t.Parallel()
	base := mustParse(t, "a.yaml", web)[0]
	for _, c := range []struct {
		name, from, to string
		same           bool
	}{
		{"file order of fields", "kind: ServiceEntry\n", "kind: \"ServiceEntry\" # a comment\n", true},
		{"status", "spec:", "status: {addresses: []}\nspec:", true},
		{"name", "name: web\n", "name: wed\n", false},
		{"namespace", "namespace: shop", "namespace: shops", false},
		{"label", "team: blue", "team: red", false},
		{"label becomes annotation", "labels: {team: blue}", "annotations: {team: blue}", false},
		{"created", "07:08:09Z", "07:08:10Z", false},
		{"spec", "10.0.0.1", "10.0.0.2", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			changed := strings.Replace(web, c.from, c.to, 1)
			if changed == web {
				t.Fatalf("%q is not in the text", c.from)
			}
			if got := mustParse(t, "b.yaml", changed)[0].Hash == base.Hash; got != c.same {
				t.Errorf("same hash: got %v, want %v", got, c.same)
			}
		})
	}
}

func TestParseForms(t *testing.T) {
	t.Parallel()
	wrap := func(spec string) string {
		return "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: web}\nspec:\n" + spec
	}
	route := func(r *networking.HTTPRoute) *networking.VirtualService {
		r.Route = []*networking.HTTPRouteDestination{{Destination: &networking.Destination{Host: "web"}}}
		return &networking.VirtualService{Hosts: []string{"web"}, Http: []*networking.HTTPRoute{r}}
	}
	const rest = "    route: [{destination: {host: web}}]\n"
	for _, c := range []struct {
		name, text string
		want       proto.Message
	}{
		{"duration with any unit", wrap("  hosts: [web]\n  http:\n  - timeout: 1m30s\n" + rest),
			route(&networking.HTTPRoute{Timeout: durationpb.New(90 * time.Second)})},
		{"milliseconds", wrap("  hosts: [web]\n  http:\n  - timeout: 100ms\n" + rest),
			route(&networking.HTTPRoute{Timeout: durationpb.New(100 * time.Millisecond)})},
		{"names of the .proto file", wrap("  hosts: [web]\n  http:\n  - mirror_percentage: {value: 1}\n    mirror: {host: web}\n" + rest),
			route(&networking.HTTPRoute{Mirror: &networking.Destination{Host: "web"},
				MirrorPercentage: &networking.Percent{Value: 1}})},
		{"null is unset", wrap("  hosts: [web]\n  gateways:\n  tls: null\n  http:\n  - timeout: ~\n" + rest), route(&networking.HTTPRoute{})},
		{"anchors and merges", wrap("  hosts: &h [web]\n  http:\n  - &r\n    timeout: 1s\n" + rest + "  - <<: *r\n    timeout: 2s\n    name: b\n"),
			&networking.VirtualService{Hosts: []string{"web"}, Http: []*networking.HTTPRoute{
				route(&networking.HTTPRoute{Timeout: durationpb.New(time.Second)}).Http[0],
				route(&networking.HTTPRoute{Timeout: durationpb.New(2 * time.Second), Name: "b"}).Http[0],
			}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := mustParse(t, "web.yaml", c.text)
			if diff := cmp.Diff(c.want, got[0].Spec, protocmp.Transform()); diff != "" {
				t.Errorf("spec (-want +got):\n%s", diff)
			}
			if got[0].Namespace != "default" {
				t.Errorf("namespace: got %q, want default", got[0].Namespace)
			}
		})
	}
}

func TestParseList(t *testing.T) {
	t.Parallel()
	indent := func(text string) string {
		return "- " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n  ") + "\n"
	}
	r := Parse("all.yaml", []byte("apiVersion: v1\nkind: List\nmetadata: {resourceVersion: \"\"}\nitems:\n"+indent(web)+
		indent(strings.Replace(web, "name: web", "name: shop", 1))))
	if len(r.Objects) != 2 || len(r.Problems) != 0 {
		t.Fatalf("got %d objects and problems %v, want 2 and none", len(r.Objects), texts(r))
	}
	if got := r.Objects[1].Origin.Line; got != 20 {
		t.Errorf("second item: line %d, want 20", got)
	}
}

func BenchmarkParseServiceEntry(b *testing.B) {
	b.ReportAllocs()
	data := []byte(web)
	for b.Loop() {
		if r := Parse("web.yaml", data); len(r.Objects) != 1 {
			b.Fatal(r)
		}
	}
}

// A file of many documents costs as much for each as a file of one.
func BenchmarkParseThousand(b *testing.B) {
	b.ReportAllocs()
	var text strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&text, "---\n%s", strings.Replace(web, "name: web", fmt.Sprintf("name: web%d", i), 1))
	}
	data := []byte(text.String())
	for b.Loop() {
		if r := Parse("web.yaml", data); len(r.Objects) != 1000 {
			b.Fatal(r)
		}
	}
}
