package main

import (
	"context"
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/registry/entry"
	"github.com/ashore-mesh/ashore/xds/gen"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// What each workload's Envoy is sent for the example's configuration stands in golden/.
func TestGolden(t *testing.T) {
	t.Parallel()
	context := contextOf(t)
	for _, w := range workloads() {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			got := resources(t, context, w)
			path := filepath.Join("golden", w.name+".yaml")
			if f := flag.Lookup("update"); f.Value.String() == "true" {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(string(want), got); d != "" {
				t.Errorf("%s differs (-want +got; \"make golden\" rewrites it):\n%s", path, d)
			}
		})
	}
}

// contextOf takes the configuration to a context. Nothing may be wrong with it, not even a little.
func contextOf(t *testing.T) *push.Context {
	t.Helper()
	in := push.Inputs{Mesh: &push.Mesh{Config: config.DefaultMesh(), Domain: "cluster.local"}}
	files, err := filepath.Glob(filepath.Join("config", "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no configuration: %v", err)
	}
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		result := config.Parse(f, data)
		for _, p := range result.Problems {
			t.Errorf("%v", p)
		}
		for _, o := range result.Objects {
			in.Objects = in.Objects.With(o.Key, o)
		}
	}
	for _, u := range entry.New(addresses{}).Derive(context.Background(), in.Objects).Updates {
		for _, p := range u.Problems {
			t.Errorf("%v", p)
		}
		for _, i := range u.Items {
			in.Services = in.Services.With(i.Service.Key, i.Service)
			in.Endpoints = in.Endpoints.With(i.Service.Key, i.Endpoints)
		}
	}
	return push.Build(nil, in)
}

// addresses gives every service a virtual address by its host's first letter: enough for an example.
type addresses struct{}

func (addresses) Allocate(_ context.Context, keys []registry.Key) (map[registry.Key][]netip.Addr, error) {
	out := map[registry.Key][]netip.Addr{}
	for _, k := range keys {
		out[k] = []netip.Addr{netip.AddrFrom4([4]byte{240, 240, 0, k.Host[0]})}
	}
	return out, nil
}

// resources are all that the workload's Envoy is sent, as YAML, type by type.
func resources(t *testing.T, c *push.Context, w workload) string {
	t.Helper()
	var ips intern.Lists[netip.Addr]
	var labels intern.Lists[push.Label]
	n := push.Node{
		ID: w.name + ".quickstart", Namespace: "quickstart", Interception: push.None, DNSDomain: "quickstart.svc.cluster.local",
		IPs:    ips.Of([]netip.Addr{netip.MustParseAddr("127.0.0." + w.host)}),
		Labels: labels.Of([]push.Label{{Key: "app", Value: w.app}, {Key: "version", Value: w.version}}),
	}
	if w.proxy {
		n.HTTPProxyPort = 15007
	}
	g := gen.New()
	scope := c.Scope(c.Classify(n))
	var out strings.Builder
	for _, typ := range []string{gen.ClusterType, gen.EndpointType, gen.ListenerType, gen.RouteType} {
		out.WriteString("# " + typ[strings.LastIndexByte(typ, '.')+1:] + "\n")
		for r := range g.Set(typ, scope).All() {
			out.WriteString(asYAML(t, r))
		}
	}
	return out.String()
}

func asYAML(t *testing.T, r *resource.Resource) string {
	t.Helper()
	typ, err := protoregistry.GlobalTypes.FindMessageByURL(r.TypeURL)
	if err != nil {
		t.Fatal(err)
	}
	m := typ.New().Interface()
	if err := proto.Unmarshal(r.Body(), m); err != nil {
		t.Fatal(err)
	}
	text, err := protojson.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	var value any
	if err := yaml.Unmarshal(text, &value); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	if err := enc.Encode([]any{value}); err != nil {
		t.Fatal(err)
	}
	return b.String()
}
