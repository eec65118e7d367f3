package config

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
)

var update = flag.Bool("update", false, "rewrite the expectations in testdata and docs")

// Every archive of testdata/problems is named after a kind, or "file" for whole files. It holds
// specs, each followed by the problems that Parse finds in an object of that spec.
func TestProblemTexts(t *testing.T) {
	t.Parallel()
	archives, err := filepath.Glob("testdata/problems/*.txtar")
	if err != nil || len(archives) == 0 {
		t.Fatalf("no archives: %v", err)
	}
	for _, path := range archives {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			t.Parallel()
			checkArchive(t, path)
		})
	}
}

// checkArchive compares one archive, or rewrites it.
func checkArchive(t *testing.T, path string) {
	archive, err := txtar.ParseFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	var cases []txtar.File
	for _, f := range archive.Files {
		if name, isWant := strings.CutSuffix(f.Name, ".problems"); isWant {
			want[name] = string(f.Data)
			continue
		}
		cases = append(cases, f)
	}
	out := &txtar.Archive{Comment: archive.Comment}
	kind := Kind(strings.TrimSuffix(filepath.Base(path), ".txtar"))
	for _, c := range cases {
		text := string(c.Data)
		if info, ok := Info(kind); ok {
			text = "apiVersion: " + info.APIVersion() + "\nkind: " + string(kind) + "\nmetadata: {name: web, namespace: shop}\nspec:\n" + text
		}
		r := Parse(filepath.Base(c.Name), []byte(text))
		got := strings.Join(append(texts(r), ""), "\n")
		for _, k := range r.Broken {
			got += "broken " + k.String() + "\n"
		}
		if r.Unread {
			got += "unread\n"
		}
		for _, o := range r.Objects {
			got += "object " + o.Key.String() + "\n"
		}
		out.Files = append(out.Files, c, txtar.File{Name: c.Name + ".problems", Data: []byte(got)})
		if diff := cmp.Diff(want[c.Name], got); diff != "" && !*update {
			t.Errorf("%s (-want +got):\n%s", c.Name, diff)
		}
	}
	if *update {
		if err := os.WriteFile(path, txtar.Format(out), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// The examples of testdata/good have neither errors nor warnings.
func TestGoodExamples(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/good/*")
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	for _, path := range files {
		t.Run(filepath.Base(path), func(t *testing.T) {
			t.Parallel()
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			r := Parse(path, data)
			for _, text := range texts(r) {
				t.Error(text)
			}
			if len(r.Objects) == 0 {
				t.Error("no objects")
			}
		})
	}
}

// docs/meshconfig.md is what the table says.
func TestMeshDoc(t *testing.T) {
	t.Parallel()
	compareDoc(t, "../docs/meshconfig.md", meshDoc())
}

// docs/istio-fields.md is what the tables of fields and values say.
func TestFieldsDoc(t *testing.T) {
	t.Parallel()
	compareDoc(t, "../docs/istio-fields.md", fieldsDoc())
}

// compareDoc compares a generated page, or rewrites it.
func compareDoc(t *testing.T, path, want string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("%s is out of date, run \"make golden\" (-want +got):\n%s", path, diff)
	}
}

// meshDoc is the text of docs/meshconfig.md: what becomes of every field.
func meshDoc() string {
	var b strings.Builder
	b.WriteString(`# MeshConfig

Istio's MeshConfig is the section ` + "`mesh`" + ` of Ashore's settings file. This page lists every field. A field without
effect gives a warning when it is set. It is refused instead if users would rely on its protection. MeshNetworks is [a
file of its own](tasks/networks.md).

| Field | Honoured | What it does here |
| --- | --- | --- |
`)
	for _, f := range meshFields() {
		b.WriteString(f.row())
	}
	b.WriteString(`
## ProxyConfig

The fields of ` + "`defaultConfig`" + ` (ProxyConfig) are settings of proxies. They can be set in four places. Each takes
precedence over those before it, field by field; ` + "`proxyMetadata`" + ` and the fields of ` + "`proxyHeaders`" + ` are merged:

1. ` + "`mesh.defaultConfig`" + `, for the whole mesh
2. a ProxyConfig object without ` + "`selector`" + `, in the root namespace for the whole mesh, else for its namespace
3. the annotation ` + "`proxy.istio.io/config`" + ` of a WorkloadGroup, or of its workloads in ` + "`spec.metadata.annotations`" + `
4. a ProxyConfig object whose ` + "`selector`" + ` selects the proxy in its own namespace

A ProxyConfig object has ` + "`concurrency`" + ` and ` + "`environmentVariables`" + ` (` + "`proxyMetadata`" + `) only. Of several for one place,
the oldest applies. Changes apply at once, except those of ` + "`concurrency`, `drainDuration`, `proxyMetadata`" + ` and
` + "`proxyStatsMatcher`" + `: they need a restart of the agent, which [replaces Envoy](agent.md#upgrade-and-restart).

| Field | Honoured | What it does here |
| --- | --- | --- |
`)
	for _, f := range proxyFields() {
		b.WriteString(f.row())
	}
	b.WriteString(providersDoc)
	return b.String()
}

const providersDoc = `
## Providers

A provider of ` + "`extensionProviders`" + ` has a name and one of these. Telemetry objects and ` + "`defaultProviders`" + ` name it.
All fields of Istio's documentation are honoured, except where the last column says otherwise.

| Provider | Receives | Notes |
| --- | --- | --- |
| ` + "`prometheus`" + ` | metrics | The mesh always has one of this name. Prometheus reads the metrics from the agents |
| ` + "`envoyFileAccessLog`" + ` | access logs | The mesh always has one, called ` + "`envoy`" + `: /dev/stdout, in the mesh's accessLogFormat and accessLogEncoding |
| ` + "`envoyHttpAls`" + ` | access logs of requests | By gRPC, Envoy's access log service |
| ` + "`envoyTcpAls`" + ` | access logs of connections that are not HTTP | By gRPC |
| ` + "`envoyOtelAls`" + ` | access logs | OTLP by gRPC. Labels are texts |
| ` + "`opentelemetry`" + ` | spans | OTLP by gRPC, or by HTTP with ` + "`http`" + `. ` + "`dynatraceSampler`, `resourceDetectors.dynatrace`, `serviceAttributeEnrichment`" + ` and ` + "`envName`" + ` of headers are refused |
| ` + "`zipkin`" + ` | spans | JSON of version 2. ` + "`envName`" + ` of headers is refused |
| ` + "`envoyExtAuthzHttp`, `envoyExtAuthzGrpc`" + ` | requests of CUSTOM AuthorizationPolicies | See [authorization](authorization.md) |
| others | | Accepted with a warning, and receive nothing. Collectors of all kinds receive ` + "`opentelemetry`" + ` |

The service of a provider is a service of the mesh, such as a ServiceEntry. Its port needs a protocol: name it
` + "`grpc`" + ` or ` + "`http`" + `. Proxies reach it even if their Sidecar does not import it.
`

// row is the field's line in a table.
func (f meshField) row() string {
	text := strings.ReplaceAll(f.text, "*", `\*`)
	return "| `" + f.path + "` | " + string(f.status) + " | " + strings.ToUpper(text[:1]) + text[1:] + " |\n"
}
