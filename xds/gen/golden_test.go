package gen

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
	"golang.org/x/tools/txtar"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/goldentest"
	"github.com/ashore-mesh/ashore/internal/secret"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/xds/gen/gentest"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// Each file of testdata is a configuration, a proxy and what the proxy is sent: config.yaml,
// node.yaml, mesh.yaml and networks.yaml (may be missing), and a part for each type that the case is about. The real
// Envoy accepts all clusters and listeners.
func TestGolden(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join("testdata", "*.txtar"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden files: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			t.Parallel()
			golden(t, file)
		})
	}
}

func golden(t *testing.T, file string) {
	archive, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	sc := scopeOf(t, archive)
	g := New()
	var clusters []*clusterv3.Cluster
	for _, r := range decoded[*clusterv3.Cluster](t, g.Set(resource.ClusterType, sc)) {
		clusters = append(clusters, r)
	}
	listeners := decodeListeners(t, g.Set(resource.ListenerType, sc))
	for i, f := range archive.Files {
		typeURL := goldenParts()[f.Name]
		if typeURL == "" {
			continue
		}
		got := asYAML(t, g.Set(typeURL, sc))
		if goldentest.Update() {
			archive.Files[i].Data = []byte(got)
		} else if diff := cmp.Diff(string(f.Data), got); diff != "" {
			t.Errorf("%s differs (-want +got; `go test ./xds/gen -run TestGolden -update` rewrites it):\n%s", f.Name,
				diff)
		}
	}
	if goldentest.Update() {
		if err := os.WriteFile(file, txtar.Format(archive), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	envoyAccepts(t, listeners, clusters)
}

// goldenParts are the parts of a golden file that are expectations.
func goldenParts() map[string]string {
	return map[string]string{
		"clusters.yaml":  resource.ClusterType,
		"endpoints.yaml": resource.EndpointType,
		"listeners.yaml": resource.ListenerType,
		"routes.yaml":    resource.RouteType,
		"secrets.yaml":   resource.SecretType,
		"filters.yaml":   resource.ExtensionConfigType,
		"names.yaml":     resource.NameTableType,
	}
}

// scopeOf takes a golden file's configuration the whole way to the scope of its proxy.
func scopeOf(t *testing.T, archive *txtar.Archive) *push.Scope {
	t.Helper()
	var (
		node    goldentest.Proxy
		mesh    yaml.Node
		objects []*config.Object
		secrets = map[secret.Name]secret.Secret{}

		networks *push.Networks
	)
	for _, f := range archive.Files {
		switch f.Name {
		case "credentials.txt": // NAMESPACE/NAME and its parts, on each line
			for line := range strings.Lines(string(f.Data)) {
				name, parts, _ := strings.Cut(strings.TrimSpace(line), " ")
				namespace, short, _ := strings.Cut(name, "/")
				secrets[secret.Name{Namespace: namespace, Name: short}] = fakeSecret(name, parts)
			}
		case "config.yaml":
			objects = parsed(t, f.Data)
		case "node.yaml":
			if err := yaml.Unmarshal(f.Data, &node); err != nil {
				t.Fatalf("node.yaml: %v", err)
			}
		case "networks.yaml":
			m, problems := config.ParseNetworks(f.Name, f.Data)
			if len(problems) > 0 {
				t.Fatalf("networks.yaml: %v", problems)
			}
			networks = push.NewNetworks(m)
		case "mesh.yaml":
			if err := yaml.Unmarshal(f.Data, &mesh); err != nil {
				t.Fatalf("mesh.yaml: %v", err)
			}
		}
	}
	in := goldentest.Inputs(t, objects, goldentest.Counting)
	in.Secrets = secret.NewSet(nil, secrets, nil)
	in.Mesh.Networks = networks
	if len(mesh.Content) > 0 {
		m, problems := config.ParseMesh("mesh.yaml", mesh.Content[0])
		if len(problems) > 0 {
			t.Fatalf("mesh.yaml: %v", problems)
		}
		in.Mesh.Config = m
	}
	c := push.Build(nil, in)
	return c.Scope(c.Classify(node.Node(t)))
}

// fakeSecret is a secret with some parts, whose texts say whose they are.
func fakeSecret(name, parts string) secret.Secret {
	text := func(part string) string {
		if !strings.Contains(parts, part) {
			return ""
		}
		return part + " of " + name
	}
	return secret.Secret{Certificate: text("tls.crt"), Key: text("tls.key"), Authorities: text("ca.crt"), Revoked: text("ca.crl")}
}

// parsed reads configuration in which nothing may be wrong.
func parsed(t *testing.T, data []byte) []*config.Object {
	t.Helper()
	result := config.Parse("config.yaml", data)
	for _, p := range result.Problems {
		if p.Severity == feed.Error {
			t.Fatalf("configuration: %v", p)
		}
	}
	for i, o := range result.Objects {
		if o.Created.IsZero() { // what stands first is older
			o.Created = time.Unix(int64(i), 0)
		}
	}
	return result.Objects
}

// messageOf is an empty message of a resource type.
func messageOf(t testing.TB, typeURL string) proto.Message {
	t.Helper()
	switch typeURL {
	case resource.ClusterType:
		return &clusterv3.Cluster{}
	case resource.EndpointType:
		return &endpointv3.ClusterLoadAssignment{}
	case resource.ListenerType:
		return &listenerv3.Listener{}
	case resource.RouteType:
		return &routev3.RouteConfiguration{}
	case resource.SecretType:
		return &tlsv3.Secret{}
	case resource.ExtensionConfigType:
		return &corev3.TypedExtensionConfig{}
	default:
		t.Fatalf("no message for %s", typeURL)
		return nil
	}
}

// decoded are the messages of a set by name. Each keeps the rules of its fields.
func decoded[M proto.Message](t testing.TB, set resource.Set) map[string]M {
	t.Helper()
	out := map[string]M{}
	for r := range set.All() {
		m := messageOf(t, r.TypeURL)
		if err := proto.Unmarshal(r.Body(), m); err != nil {
			t.Fatalf("%s: %v", r.Name, err)
		}
		if err := gentest.ValidateAll(m); err != nil {
			t.Errorf("%s: %v", r.Name, err)
		}
		out[r.Name] = m.(M)
	}
	return out
}

// asYAML writes out a set, its own layer after a line that says so.
func asYAML(t *testing.T, set resource.Set) string {
	t.Helper()
	var b strings.Builder
	for i, layer := range []*resource.Layer{set.Shared, set.Own} {
		if i == 1 && len(layer.Items()) > 0 {
			b.WriteString("# the proxy's own\n")
		}
		for _, r := range layer.Items() {
			b.WriteString(yamlOf(t, r))
		}
	}
	return b.String()
}

// yamlOf writes out one resource as an element of a list.
func yamlOf(t *testing.T, r *resource.Resource) string {
	t.Helper()
	if r.TypeURL == resource.NameTableType {
		var b strings.Builder
		for _, e := range decodeNames(t, r.Body()) {
			fmt.Fprintf(&b, "- %s\n", e)
		}
		return b.String()
	}
	m := messageOf(t, r.TypeURL)
	if err := proto.Unmarshal(r.Body(), m); err != nil {
		t.Fatalf("%s: %v", r.Name, err)
	}
	if err := gentest.ValidateAll(m); err != nil {
		t.Errorf("%s: %v", r.Name, err)
	}
	return goldentest.Element(t, m)
}

// decodeNames writes out the entries of a name table.
func decodeNames(t *testing.T, body []byte) []string {
	t.Helper()
	var out []string
	for _, e := range fields(t, body) {
		entry := fields(t, e.value)
		line := string(entry[0].value) + ":"
		for _, f := range fields(t, entry[1].value) {
			line += fmt.Sprintf(" %d=%s", f.number, f.value)
		}
		out = append(out, line)
	}
	return out
}

type wireField struct {
	number protowire.Number
	value  []byte
}

// fields are the length-delimited fields of a message.
func fields(t *testing.T, b []byte) []wireField {
	t.Helper()
	var out []wireField
	for len(b) > 0 {
		number, typ, n := protowire.ConsumeTag(b)
		if n < 0 || typ != protowire.BytesType {
			t.Fatalf("field %d of type %d: want bytes", number, typ)
		}
		v, m := protowire.ConsumeBytes(b[n:])
		if m < 0 {
			t.Fatalf("field %d: cut off", number)
		}
		out = append(out, wireField{number, v})
		b = b[n+m:]
	}
	return out
}
