package entry_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	networking "istio.io/api/networking/v1alpha3"

	"google.golang.org/protobuf/proto"

	"github.com/google/go-cmp/cmp"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/pmap"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/registry/entry"
)

type objects = pmap.Map[config.Key, *config.Object]

func with(objs objects, kind config.Kind, name string, spec proto.Message, labels ...string) objects {
	o := &config.Object{Key: config.Key{Kind: kind, Namespace: "shop", Name: name}, Spec: spec}
	for _, l := range labels {
		k, v, _ := strings.Cut(l, "=")
		if o.Labels == nil {
			o.Labels = map[string]string{}
		}
		o.Labels[k] = v
	}
	return objs.With(o.Key, o)
}

func serviceEntry(resolution networking.ServiceEntry_Resolution, hosts ...string) *networking.ServiceEntry {
	return &networking.ServiceEntry{
		Hosts: hosts, Resolution: resolution,
		Ports: []*networking.ServicePort{
			{Number: 80, Name: "http"}, {Number: 443, Name: "secure", Protocol: "TLS", TargetPort: 8443},
		},
	}
}

// text describes the services of a batch.
func text(b feed.Batch[registry.Instances]) string {
	var out strings.Builder
	for _, u := range b.Updates {
		if len(u.Items) == 0 {
			fmt.Fprintf(&out, "%s gone\n", u.Group)
		}
		for _, in := range u.Items {
			s := in.Service
			fmt.Fprintf(&out, "%s/%s %v auto %v ports %v resolution %d external %v\n",
				s.Namespace, s.Host, s.Addresses, s.WantsAddress(), s.Ports, s.Resolution, s.External)
			for _, ep := range in.Endpoints.All() {
				fmt.Fprintf(&out, "  %s ports %v labels %v locality %s weight %d sa %q tls %q workload %s/%s\n",
					ep.Address,
					ep.Ports, ep.Labels, ep.Locality, ep.Weight, ep.ServiceAccount, ep.TLSMode, ep.Namespace, ep.Workload)
			}
		}
		for _, p := range u.Problems {
			fmt.Fprintf(&out, "  %s: %s\n", p.Severity, p)
		}
	}
	return out.String()
}

func TestDerive(t *testing.T) {
	t.Parallel()
	inline := serviceEntry(networking.ServiceEntry_STATIC, "web.shop")
	inline.Addresses = []string{"10.1.0.0/16", "240.0.0.1"}
	inline.Location = networking.ServiceEntry_MESH_INTERNAL
	inline.Endpoints = []*networking.WorkloadEntry{
		{
			Address: "10.0.0.1", Ports: map[string]uint32{"http": 8080}, Labels: map[string]string{"version": "v1"},
			Locality: "eu/a", Weight: 3, ServiceAccount: "web",
		},
		{
			Address: "unix:///run/web", Labels: map[string]string{"security.istio.io/tlsMode": "disabled"},
			ServiceAccount: "web",
		},
	}
	selecting := serviceEntry(networking.ServiceEntry_STATIC, "api.shop")
	selecting.Location = networking.ServiceEntry_MESH_INTERNAL
	selecting.WorkloadSelector = &networking.WorkloadSelector{Labels: map[string]string{"app": "api"}}
	none := serviceEntry(networking.ServiceEntry_NONE, "*.example.com")
	none.Location = networking.ServiceEntry_MESH_EXTERNAL
	tests := map[string]struct {
		objects objects
		want    string
	}{
		"inline endpoints, declared addresses": {
			objects: with(objects{}, config.ServiceEntry, "web", inline),
			want: `shop/web.shop [10.1.0.0/16 240.0.0.1/32] auto false ports [{80 http HTTP 0} {443 secure TLS 8443}] resolution 0 external false
  10.0.0.1 ports map[http:8080] labels map[version:v1] locality eu/a weight 3 sa "web" tls "istio" workload shop/web
  unix:///run/web ports map[] labels map[security.istio.io/tlsMode:disabled] locality  weight 0 sa "web" tls "" workload shop/web
`,
		},
		"selected workloads, by metadata and by spec labels": {
			objects: with(with(with(with(objects{}, config.ServiceEntry, "api", selecting),
				config.WorkloadEntry, "one", &networking.WorkloadEntry{Address: "10.0.0.1"}, "app=api"),
				config.WorkloadEntry, "two", &networking.WorkloadEntry{
					Address: "10.0.0.2", Labels: map[string]string{"app": "api", "version": "v2"},
				}),
				config.WorkloadEntry, "other", &networking.WorkloadEntry{Address: "10.0.0.3"}, "app=other"),
			want: `shop/api.shop [] auto true ports [{80 http HTTP 0} {443 secure TLS 8443}] resolution 0 external false
  10.0.0.1 ports map[] labels map[app:api] locality  weight 0 sa "" tls "" workload shop/one
  10.0.0.2 ports map[] labels map[app:api version:v2] locality  weight 0 sa "" tls "" workload shop/two
`,
		},
		"a DNS service without endpoints resolves its own host": {
			objects: with(objects{}, config.ServiceEntry, "ext",
				serviceEntry(networking.ServiceEntry_DNS, "example.com")),
			want: `shop/example.com [] auto true ports [{80 http HTTP 0} {443 secure TLS 8443}] resolution 1 external true
  example.com ports map[] labels map[] locality  weight 0 sa "" tls "" workload shop/
`,
		},
		"NONE passes through, and a wildcard gets no address": {
			objects: with(objects{}, config.ServiceEntry, "any", none),
			want: `shop/*.example.com [] auto false ports [{80 http HTTP 0} {443 secure TLS 8443}] resolution 3 external true
`,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := text(entry.New(nil).Derive(tc.objects))
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

// The first batch is full, also when it is empty, and no other one.
func TestFirstBatchIsFull(t *testing.T) {
	t.Parallel()
	d := entry.New(nil)
	if b := d.Derive(objects{}); !b.Full {
		t.Error("the first batch is not full")
	}
	x := with(objects{}, config.ServiceEntry, "x", serviceEntry(networking.ServiceEntry_STATIC, "x"))
	if b := d.Derive(x); b.Full {
		t.Error("the second batch is full")
	}
}

// A change of a WorkloadEntry derives the services that select it, or selected it, and no others.
func TestDeriveSelecting(t *testing.T) {
	t.Parallel()
	d := entry.New(nil)
	objs := objects{}
	for _, app := range []string{"a", "b", "c"} {
		se := serviceEntry(networking.ServiceEntry_STATIC, app+".shop")
		se.WorkloadSelector = &networking.WorkloadSelector{Labels: map[string]string{"app": app}}
		objs = with(objs, config.ServiceEntry, app, se)
	}
	objs = with(objs, config.WorkloadEntry, "w", &networking.WorkloadEntry{Address: "10.0.0.1"}, "app=a")
	d.Derive(objs)
	groups := func(b feed.Batch[registry.Instances]) []string {
		var out []string
		for _, u := range b.Updates {
			out = append(out, u.Group)
		}
		return out
	}
	moved := with(objs, config.WorkloadEntry, "w", &networking.WorkloadEntry{Address: "10.0.0.1"}, "app=b")
	if got, want := groups(d.Derive(moved)), []string{"shop/a.shop", "shop/b.shop"}; !slices.Equal(got, want) {
		t.Errorf("moved from a to b: derived %q, want %q", got, want)
	}
}

// Derived in steps equals derived at once.
func FuzzDerive(f *testing.F) {
	rnd := rand.New(rand.NewPCG(7, 8))
	for range 20 {
		seed := make([]byte, 60)
		for i := range seed {
			seed[i] = byte(rnd.IntN(256))
		}
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, edits []byte) {
		edits = edits[:min(len(edits), 300)]
		d := entry.New(nil)
		var objs objects
		state := map[string]string{}
		for i := 0; i+1 < len(edits); i += 2 {
			objs = edit(objs, edits[i], edits[i+1])
			for _, u := range d.Derive(objs).Updates {
				state[u.Group] = text(feed.Batch[registry.Instances]{Updates: []feed.Update[registry.Instances]{u}})
				if len(u.Items) == 0 {
					delete(state, u.Group)
				}
			}
		}
		fresh := map[string]string{}
		for _, u := range entry.New(nil).Derive(objs).Updates {
			fresh[u.Group] = text(feed.Batch[registry.Instances]{Updates: []feed.Update[registry.Instances]{u}})
		}
		if d := cmp.Diff(fresh, state); d != "" {
			t.Errorf("derived step by step (+) differs from derived at once (-):\n%s", d)
		}
	})
}

// Two ServiceEntries of one host are one service with the ports of both. The older one sets the
// options.
func TestTwoEntries(t *testing.T) {
	t.Parallel()
	entryOf := func(port uint32, change func(*networking.ServiceEntry)) *networking.ServiceEntry {
		se := serviceEntry(networking.ServiceEntry_STATIC, "web.shop")
		se.Ports = []*networking.ServicePort{{Number: port, Name: "http"}}
		se.Endpoints = []*networking.WorkloadEntry{{Address: fmt.Sprint("10.0.0.", port)}}
		if change != nil {
			change(se)
		}
		return se
	}
	for name, tc := range map[string]struct {
		change  func(*networking.ServiceEntry) // of the second
		ports   int
		problem string
	}{
		"they agree": {nil, 2, ""},
		"resolution": {
			func(se *networking.ServiceEntry) { se.Resolution = networking.ServiceEntry_DNS }, 1,
			"host web.shop is also declared by ServiceEntry shop/a, which sets its options because it is first by name: " +
				"its resolution is DNS, not STATIC; its endpoints are not used; make the two agree",
		},
		"exportTo": {
			func(se *networking.ServiceEntry) { se.ExportTo = []string{"."} }, 1,
			`its exportTo is ["."], not []; its endpoints are not used`,
		},
		"location": {
			func(se *networking.ServiceEntry) { se.Location = networking.ServiceEntry_MESH_INTERNAL }, 2,
			"its location is MESH_INTERNAL, not MESH_EXTERNAL",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			objs := with(objects{}, config.ServiceEntry, "a", entryOf(80, nil))
			objs = with(objs, config.ServiceEntry, "b", entryOf(90, tc.change))
			u := entry.New(nil).Derive(objs).Updates[0]
			in := u.Items[0]
			if len(in.Service.Ports) != tc.ports || in.Endpoints.Len() != tc.ports {
				t.Errorf("%d ports, %d endpoints; want %d", len(in.Service.Ports), in.Endpoints.Len(), tc.ports)
			}
			got := ""
			for _, p := range u.Problems {
				got += p.Text
			}
			if !strings.Contains(got, tc.problem) || (got == "") != (tc.problem == "") {
				t.Errorf("problem: got %q, want %q", got, tc.problem)
			}
		})
	}
}

func edit(objs objects, what, how byte) objects {
	name := fmt.Sprint("n", what/4%3)
	switch what % 4 {
	case 0:
		return objs.Without(config.Key{Kind: config.ServiceEntry, Namespace: "shop", Name: name})
	case 1:
		return objs.Without(config.Key{Kind: config.WorkloadEntry, Namespace: "shop", Name: name})
	case 2:
		se := serviceEntry(networking.ServiceEntry_Resolution(how%3), fmt.Sprint("h", how%4), "shared")
		if how%2 == 0 {
			se.WorkloadSelector = &networking.WorkloadSelector{Labels: map[string]string{"app": fmt.Sprint(how % 3)}}
		}
		if how%5 == 0 {
			se.Addresses = []string{"240.0.0.1"}
		}
		return with(objs, config.ServiceEntry, name, se)
	default:
		entry := &networking.WorkloadEntry{Address: fmt.Sprint("10.0.0.", how)}
		return with(objs, config.WorkloadEntry, name, entry, fmt.Sprint("app=", how%3))
	}
}

func TestPortProtocols(t *testing.T) {
	t.Parallel()
	tests := []struct {
		declared, name string
		want           registry.Protocol
	}{
		{"HTTP", "", registry.HTTP},
		{"http2", "x", registry.HTTP2},
		{"GRPC-Web", "", registry.GRPCWeb},
		{"", "http", registry.HTTP},
		{"", "http-web", registry.HTTP},
		{"", "grpc-web-x", registry.GRPCWeb},
		{"", "grpc-x", registry.GRPC},
		{"", "TCP-db", registry.TCP},
		{"", "web", registry.Unknown},
		{"", "httpx", registry.Unknown},
		{"TCP", "http", registry.TCP},
		{"nonsense", "http", registry.Unknown},
		{"", "", registry.Unknown},
	}
	for _, tc := range tests {
		port := &networking.ServicePort{Number: 1, Name: tc.name, Protocol: tc.declared}
		se := &networking.ServiceEntry{Hosts: []string{"x"}, Ports: []*networking.ServicePort{port}}
		b := entry.New(nil).Derive(with(objects{}, config.ServiceEntry, "x", se))
		if got := b.Updates[0].Items[0].Service.Ports[0].Protocol; got != tc.want {
			t.Errorf("protocol %q, name %q: got %d, want %d", tc.declared, tc.name, got, tc.want)
		}
	}
}

// A selector with an empty value selects only workloads that have the label.
func TestSelectorOfEmptyValue(t *testing.T) {
	t.Parallel()
	web := serviceEntry(networking.ServiceEntry_STATIC, "web.example.com")
	web.WorkloadSelector = &networking.WorkloadSelector{Labels: map[string]string{"app": "web", "canary": ""}}
	objs := with(objects{}, config.ServiceEntry, "web", web)
	objs = with(objs, config.WorkloadEntry, "without", &networking.WorkloadEntry{Address: "10.0.0.1"}, "app=web")
	objs = with(objs, config.WorkloadEntry, "other", &networking.WorkloadEntry{Address: "10.0.0.2"}, "canary=")
	objs = with(objs, config.WorkloadEntry, "another", &networking.WorkloadEntry{Address: "10.0.0.3"}, "canary=")
	batch := entry.New(nil).Derive(objs)
	if len(batch.Updates) != 1 || len(batch.Updates[0].Items) != 1 {
		t.Fatalf("got %+v, want one service", batch.Updates)
	}
	if got := batch.Updates[0].Items[0].Endpoints.All(); len(got) != 0 {
		t.Errorf("selected %+v, want none", got)
	}
}
