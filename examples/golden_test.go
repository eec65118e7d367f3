package examples

import (
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoregistry"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/analyze"
	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/goldentest"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry/entry"
	"github.com/ashore-mesh/ashore/xds/gen"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// TestMain takes the flag -update, which rewrites what golden files expect.
func TestMain(m *testing.M) {
	flag.Bool("update", false, "rewrite what golden files expect")
	goleak.VerifyTestMain(m)
}

// Every example with a folder config has a file proxies.yaml, and golden/NAME.yaml holds what each
// of its proxies is sent.
func TestGolden(t *testing.T) {
	t.Parallel()
	folders, err := filepath.Glob(filepath.Join("*", "config"))
	if err != nil || len(folders) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	for _, folder := range folders {
		example := filepath.Dir(folder)
		t.Run(example, func(t *testing.T) {
			t.Parallel()
			proxies := goldentest.Proxies(t, filepath.Join(example, "proxies.yaml"))
			c := push.Build(nil, goldentest.Inputs(t, registered(t, objects(t, folder), proxies), byLetter))
			for _, p := range analyze.Problems(analyze.Run(t.Context(), c)) {
				t.Errorf("%v", p)
			}
			names := map[string]bool{}
			for _, p := range proxies {
				names[p.Name+".yaml"] = true
				goldentest.Compare(t, filepath.Join(example, "golden", p.Name+".yaml"), resources(t, c, p))
			}
			onlyExpected(t, filepath.Join(example, "golden"), names)
		})
	}
}

// objects reads an example's configuration. Nothing may be wrong with it, not even a little.
func objects(t *testing.T, folder string) []*config.Object {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no configuration: %v", err)
	}
	var out []*config.Object
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		result := config.Parse(f, data)
		for _, p := range result.Problems {
			t.Errorf("%v", p)
		}
		out = append(out, result.Objects...)
	}
	return out
}

// registered are the objects, and a WorkloadEntry for each proxy that registers with a group. Such
// a proxy has the group's labels too, from here on.
func registered(t *testing.T, objects []*config.Object, proxies []goldentest.Proxy) []*config.Object {
	t.Helper()
	groups := map[config.Key]*config.Object{}
	for _, o := range objects {
		if o.Kind == config.WorkloadGroup {
			groups[o.Key] = o
		}
	}
	for i, p := range proxies {
		if p.Group == "" {
			continue
		}
		g := groups[config.Key{Kind: config.WorkloadGroup, Namespace: p.Namespace, Name: p.Group}]
		if g == nil {
			t.Fatalf("proxy %s: there is no WorkloadGroup %s/%s", p.Name, p.Namespace, p.Group)
		}
		proxies[i].Labels = entry.GroupLabels(g.Spec.(*networking.WorkloadGroup), p.Labels)
		o := &config.Object{
			Key: config.Key{Kind: config.WorkloadEntry, Namespace: p.Namespace, Name: p.Name},
			Spec: &networking.WorkloadEntry{
				Address: p.Addresses[0], Labels: proxies[i].Labels, ServiceAccount: entry.AccountOf(g).Name,
			},
		}
		o.Hash = config.HashOf(o)
		objects = append(objects, o)
	}
	return objects
}

// onlyExpected fails when a proxy that is no more has left its file behind.
func onlyExpected(t *testing.T, folder string, names map[string]bool) {
	t.Helper()
	files, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !names[f.Name()] {
			t.Errorf("%s is of no proxy: remove it, or name its proxy in proxies.yaml", filepath.Join(folder, f.Name()))
		}
	}
}

// byLetter is a virtual IP by the first letter of the host, so that a new service does not change
// those of others.
func byLetter(host string, _ int) netip.Addr { return netip.AddrFrom4([4]byte{240, 240, 0, host[0]}) }

// resources are all that a proxy is sent, as YAML, type by type.
func resources(t *testing.T, c *push.Context, p goldentest.Proxy) string {
	t.Helper()
	g := gen.New()
	scope := c.Scope(c.Classify(p.Node(t)))
	var out strings.Builder
	for _, typ := range []string{resource.ClusterType, resource.EndpointType, resource.ListenerType, resource.RouteType,
		resource.SecretType, resource.ExtensionConfigType} {
		set := g.Set(typ, scope)
		if (typ == resource.SecretType || typ == resource.ExtensionConfigType) && set.Len() == 0 {
			continue
		}
		out.WriteString("# " + typ[strings.LastIndexByte(typ, '.')+1:] + "\n")
		for r := range set.All() {
			out.WriteString(goldentest.Element(t, message(t, r)))
		}
	}
	return out.String()
}

func message(t *testing.T, r *resource.Resource) proto.Message {
	t.Helper()
	typ, err := protoregistry.GlobalTypes.FindMessageByURL(r.TypeURL)
	if err != nil {
		t.Fatal(err)
	}
	m := typ.New().Interface()
	if err := proto.Unmarshal(r.Body(), m); err != nil {
		t.Fatalf("%s: %v", r.Name, err)
	}
	return m
}
