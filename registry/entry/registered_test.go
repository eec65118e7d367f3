package entry_test

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	mesh "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"google.golang.org/protobuf/proto"

	"github.com/google/go-cmp/cmp"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/record"
	"github.com/ashore-mesh/ashore/internal/testlog"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/registry/entry"
	"github.com/ashore-mesh/ashore/registry/shared"
)

// newRuntime makes a Runtime whose registrations do not end: it is not run.
func newRuntime(t *testing.T) *shared.Runtime {
	t.Helper()
	m, err := shared.New(t.Context(), shared.Config{Records: record.NewMemory(), Replica: "one", Log: testlog.New(t)})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// join is a workload of a group of namespace shop.
func join(group, address, identity string, change ...func(*registry.Registration)) registry.Registration {
	a := netip.MustParseAddr(address)
	r := registry.Registration{Addresses: []netip.Addr{a}, Session: "1"}
	r.Namespace, r.Group, r.Name = "shop", group, registry.RegistrationName(group, a, "")
	if identity != "" {
		r.Identity = "spiffe://cluster.local/ns/shop/sa/" + identity
	}
	for _, f := range change {
		f(&r)
	}
	return r
}

// registerAll registers workloads.
func registerAll(t *testing.T, rt *shared.Runtime, all ...registry.Registration) {
	t.Helper()
	for _, r := range all {
		h := r.Health
		if err := rt.Connect(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		if h != (registry.Report{}) {
			if err := rt.Report(t.Context(), r.RegistrationKey, r.Session, h); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func unhealthy(r *registry.Registration) {
	r.Health = registry.Report{State: registry.ReportedUnhealthy, Message: "503"}
}

func healthyReport(r *registry.Registration) {
	r.Health = registry.Report{State: registry.ReportedHealthy}
}

func probing(r *registry.Registration) { r.Probed = true }

func unintercepted(r *registry.Registration) { r.Unintercepted = true }

func disconnected(r *registry.Registration) { r.Session = "disconnected" }

func ownLabels(labels map[string]string) func(*registry.Registration) {
	return func(r *registry.Registration) { r.Labels = labels }
}

func reportsFor(name string) func(*registry.Registration) {
	return func(r *registry.Registration) { r.Group, r.Name = "", name }
}

// endpointsOf describes the endpoints of a batch.
func endpointsOf(b feed.Batch[registry.Instances]) string {
	var out []string
	for _, u := range b.Updates {
		for _, in := range u.Items {
			for _, ep := range in.Endpoints.All() {
				text := ep.Address + " " + ep.Workload + " sa=" + ep.ServiceAccount + " tls=" + ep.TLSMode
				if !ep.Intercepted() {
					text += " not intercepted"
				}
				if ep.Health != registry.Healthy {
					text += " unhealthy"
				}
				out = append(out, text)
			}
		}
	}
	return strings.Join(out, "\n")
}

// shop is the service api, which selects app=api, and the group api.
func shop(group *networking.WorkloadGroup) objects {
	se := serviceEntry(networking.ServiceEntry_STATIC, "api.shop")
	se.Addresses = []string{"240.0.0.1"}
	se.WorkloadSelector = &networking.WorkloadSelector{Labels: map[string]string{"app": "api"}}
	objs := with(objects{}, config.ServiceEntry, "api", se)
	if group == nil {
		return objs
	}
	return with(objs, config.WorkloadGroup, "api", group)
}

func apiGroup() *networking.WorkloadGroup {
	template := &networking.WorkloadEntry{ServiceAccount: "api", Labels: map[string]string{"app": "api"}}
	return &networking.WorkloadGroup{Template: template}
}

func TestRegistered(t *testing.T) {
	t.Parallel()
	probedGroup := apiGroup()
	probedGroup.Probe = &networking.ReadinessProbe{}
	redirected := apiGroup()
	redirected.Metadata = &networking.WorkloadGroup_ObjectMeta{
		Labels: map[string]string{registry.InterceptionLabel: "redirect"},
	}
	noAccount := apiGroup()
	noAccount.Template.ServiceAccount = ""
	written := func(address string, annotations ...string) objects {
		entry := &networking.WorkloadEntry{Address: address, ServiceAccount: "api"}
		objs := with(shop(apiGroup()), config.WorkloadEntry, "own", entry, "app=api")
		for k, o := range objs.All() {
			if len(annotations) > 0 && k.Name == "own" {
				o.Annotations = map[string]string{annotations[0]: annotations[1]}
			}
		}
		return objs
	}
	admin := with(shop(apiGroup()), config.WorkloadGroup, "admin", apiGroup())
	adminPort := apiGroup()
	adminPort.Template.Ports = map[string]uint32{"http": 9}
	web := apiGroup()
	web.Template.ServiceAccount = "web"
	both := with(written("10.0.0.1"), config.WorkloadGroup, "web", web)
	two := with(shop(apiGroup()), config.WorkloadGroup, "a-web", web)
	api := func(change ...func(*registry.Registration)) registry.Registration {
		return join("api", "10.0.0.1", "api", change...)
	}
	identity := func(id string) func(*registry.Registration) {
		return func(r *registry.Registration) { r.Identity = id }
	}
	network := func(n, name string) func(*registry.Registration) {
		return func(r *registry.Registration) { r.Network, r.Name = n, name }
	}
	probedEntry := written("10.0.0.2", "proxy.istio.io/health-checks-enabled", "true")
	const plain, entry2 = "10.0.0.1 api-10.0.0.1 sa=api tls=istio", "10.0.0.2 own sa=api tls=istio"
	type all = []registry.Registration
	for name, tc := range map[string]struct {
		objects objects
		all     all
		want    string
	}{
		"with an identity":          {shop(apiGroup()), all{api()}, plain},
		"without identity: no mTLS": {shop(apiGroup()), all{api(identity(""))}, "10.0.0.1 api-10.0.0.1 sa=api tls="},
		"default account": {
			shop(noAccount), all{join("api", "10.0.0.1", "default")}, "10.0.0.1 api-10.0.0.1 sa=default tls=istio",
		},
		"no group":                     {shop(nil), all{api()}, ""},
		"other account than the group": {shop(apiGroup()), all{join("api", "10.0.0.1", "web")}, ""},
		"other namespace":              {shop(apiGroup()), all{api(identity("spiffe://cluster.local/ns/bank/sa/api"))}, ""},
		"invalid identity":             {shop(apiGroup()), all{api(identity("nonsense"))}, ""},
		"label disables mTLS": {
			shop(apiGroup()), all{api(ownLabels(map[string]string{"security.istio.io/tlsMode": "disabled"}))},
			"10.0.0.1 api-10.0.0.1 sa=api tls=",
		},
		"the group's label is used":   {shop(apiGroup()), all{api(ownLabels(map[string]string{"app": "web"}))}, plain},
		"not intercepted":             {shop(apiGroup()), all{api(unintercepted)}, plain + " not intercepted"},
		"the group sets interception": {shop(redirected), all{api(unintercepted)}, plain},
		"unhealthy":                   {shop(apiGroup()), all{api(unhealthy)}, plain + " unhealthy"},
		"probed, no report":           {shop(apiGroup()), all{api(probing)}, plain + " unhealthy"},
		"probed, healthy":             {shop(apiGroup()), all{api(probing, healthyReport)}, plain},
		"group has a probe":           {shop(probedGroup), all{api()}, plain + " unhealthy"},
		"one address in two groups": {
			admin, all{api(), join("admin", "10.0.0.1", "api")}, "10.0.0.1 admin-10.0.0.1 sa=api tls=istio",
		},
		"two groups, disconnected in one": {
			admin, all{api(), join("admin", "10.0.0.1", "api", disconnected)}, plain,
		},
		"two groups with different ports": {
			with(shop(apiGroup()), config.WorkloadGroup, "admin", adminPort), all{api(),
				join("admin", "10.0.0.1", "api")},
			"10.0.0.1 admin-10.0.0.1 sa=api tls=istio\n" + plain,
		},
		"two networks": {
			shop(apiGroup()), all{api(network("a", "api-10.0.0.1")), api(network("b", "other"))},
			plain + "\n10.0.0.1 other sa=api tls=istio",
		},
		"WorkloadEntry of the same address": {written("10.0.0.1"), all{api()}, "10.0.0.1 own sa=api tls=istio"},
		"WorkloadEntry gets its health": {
			written("10.0.0.1"), all{api(unhealthy)}, "10.0.0.1 own sa=api tls=istio unhealthy",
		},
		"IPv6 in another form": {
			written("2001:DB8::0:1"), all{join("api", "2001:db8::1", "api")}, "2001:DB8::0:1 own sa=api tls=istio",
		},
		"WorkloadEntry of another address": {written("10.0.0.2"), all{api()}, entry2 + "\n" + plain},
		"report for a WorkloadEntry": {
			written("10.0.0.2"), all{join("", "10.0.0.2", "api", reportsFor("own"), unhealthy)}, entry2 + " unhealthy",
		},
		"report for another": {
			written("10.0.0.2"), all{join("", "10.0.0.2", "api", reportsFor("other"), unhealthy)}, entry2,
		},
		"probed WorkloadEntry, no report": {probedEntry, nil, entry2 + " unhealthy"},
		"probed WorkloadEntry, healthy": {
			probedEntry, all{join("", "10.0.0.2", "api", reportsFor("own"), healthyReport)}, entry2,
		},
		"WorkloadEntry of another account": {
			both, all{join("web", "10.0.0.1", "web", unhealthy)},
			"10.0.0.1 own sa=api tls=istio\n10.0.0.1 web-10.0.0.1 sa=web tls=istio unhealthy",
		},
		"report of another account": {
			written("10.0.0.2"), all{join("", "10.0.0.2", "web", reportsFor("own"), unhealthy)}, entry2,
		},
		"two accounts at one address": {
			two, all{api(), join("a-web", "10.0.0.1", "web", unhealthy)},
			"10.0.0.1 a-web-10.0.0.1 sa=web tls=istio unhealthy\n" + plain,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rt := newRuntime(t)
			registerAll(t, rt, tc.all...)
			for _, r := range tc.all {
				if r.Session == "disconnected" {
					if err := rt.Disconnect(t.Context(), r.RegistrationKey, r.Session); err != nil {
						t.Fatal(err)
					}
				}
			}
			if d := cmp.Diff(tc.want, endpointsOf(entry.New(rt).Derive(tc.objects))); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

// The WorkloadEntry of a registered workload has the values of the group's metadata, then of the
// template, then of the node.
func TestRegisteredEntry(t *testing.T) {
	t.Parallel()
	rt := newRuntime(t)
	registerAll(t, rt, join("api", "10.0.0.1", "api", probing, unhealthy, func(r *registry.Registration) {
		r.Labels = map[string]string{"a": "node", "c": "node", "d": "node", "istio-locality": "x"}
		r.Locality = registry.Locality{Region: "eu", Zone: "eu-1"}
	}))
	group := &networking.WorkloadGroup{
		Metadata: &networking.WorkloadGroup_ObjectMeta{
			Labels: map[string]string{"a": "meta", "b": "meta"}, Annotations: map[string]string{"owner": "shop"},
		},
		Template: &networking.WorkloadEntry{
			ServiceAccount: "api", Labels: map[string]string{"a": "t", "b": "t", "c": "t"},
			Locality: "us", Network: "n1", Weight: 3, Ports: map[string]uint32{"http": 8080},
		},
	}
	b := entry.New(rt)
	b.Derive(with(objects{}, config.WorkloadGroup, "api", group))
	if n := b.Entries().Len(); n != 1 {
		t.Fatalf("%d entries are shown", n)
	}
	o := b.Entries().At(config.Key{Kind: config.WorkloadEntry, Namespace: "shop", Name: "api-10.0.0.1"})
	w := o.Spec.(*networking.WorkloadEntry)
	want := &networking.WorkloadEntry{
		Address: "10.0.0.1", Locality: "eu/eu-1", Network: "n1", Weight: 3, ServiceAccount: "api",
		Ports: map[string]uint32{"http": 8080}, Labels: map[string]string{"a": "meta", "b": "meta", "c": "t",
			"d": "node", "service.istio.io/workload-name": "api"},
	}
	if !proto.Equal(w, want) {
		t.Errorf("spec: got %v, want %v", w, want)
	}
	delete(o.Annotations, "istio.io/connectedAt")
	annotations := map[string]string{
		"owner": "shop", "istio.io/autoRegistrationGroup": "api", "istio.io/workloadController": "one",
		"proxy.istio.io/health-checks-enabled": "true", "ashore.io/health": "unhealthy: 503",
	}
	if d := cmp.Diff(annotations, o.Annotations); d != "" {
		t.Errorf("annotations (-want +got):\n%s", d)
	}
	if problems := config.Validate(o); len(problems) > 0 {
		t.Errorf("it is not valid: %v", problems)
	}
	if group.Template.Address != "" {
		t.Error("the group was changed")
	}
}

// A proxy that reconnects, or reports the same health, changes its WorkloadEntry but no service.
func TestReconnectDerivesNothing(t *testing.T) {
	t.Parallel()
	rt := newRuntime(t)
	registerAll(t, rt, join("api", "10.0.0.1", "api", unhealthy))
	b := entry.New(rt)
	objs := shop(apiGroup())
	b.Derive(objs)
	before := b.Entries()
	registerAll(t, rt, join("api", "10.0.0.1", "api"), join("api", "10.0.0.1", "api", unhealthy))
	if got := b.Derive(objs); len(got.Updates) > 0 {
		t.Errorf("derived %s", endpointsOf(got))
	}
	if b.Entries() == before {
		t.Error("its WorkloadEntry has the time of the former connection")
	}
	registerAll(t, rt, join("api", "10.0.0.1", "api", healthyReport))
	if got := endpointsOf(b.Derive(objs)); got != "10.0.0.1 api-10.0.0.1 sa=api tls=istio" {
		t.Errorf("got %q", got)
	}
}

// When a group changes, is deleted or returns, so are its workloads.
func TestGroupChanges(t *testing.T) {
	t.Parallel()
	rt := newRuntime(t)
	registerAll(t, rt, join("api", "10.0.0.1", "api"), join("api", "10.0.0.2", "other"))
	b := entry.New(rt)
	other := apiGroup()
	other.Template.ServiceAccount = "other"
	elsewhere := apiGroup()
	elsewhere.Template.Labels = map[string]string{"app": "web"}
	for i, s := range []struct {
		group *networking.WorkloadGroup
		want  string
	}{
		{nil, ""},
		{apiGroup(), "10.0.0.1 api-10.0.0.1 sa=api tls=istio"},
		{other, "10.0.0.2 api-10.0.0.2 sa=other tls=istio"},
		{elsewhere, ""},
		{apiGroup(), "10.0.0.1 api-10.0.0.1 sa=api tls=istio"},
		{nil, ""},
		{apiGroup(), "10.0.0.1 api-10.0.0.1 sa=api tls=istio"},
	} {
		if got := endpointsOf(b.Derive(shop(s.group))); got != s.want {
			t.Errorf("step %d: got %q, want %q", i, got, s.want)
		}
	}
}

// Derived in steps equals derived at once.
func TestRegisteredIsItsInput(t *testing.T) {
	t.Parallel()
	rt := newRuntime(t)
	b := entry.New(rt)
	objs := shop(apiGroup())
	b.Derive(objs)
	last := ""
	check := func(what string) {
		t.Helper()
		if batch := b.Derive(objs); len(batch.Updates) > 0 {
			last = endpointsOf(batch)
		}
		if want := endpointsOf(entry.New(rt).Derive(objs)); last != want {
			t.Errorf("%s: got %q, want %q", what, last, want)
		}
	}
	one, two := join("api", "10.0.0.1", "api"), join("api", "10.0.0.2", "api")
	registerAll(t, rt, one)
	check("one")
	registerAll(t, rt, two)
	check("two")
	registerAll(t, rt, join("api", "10.0.0.1", "api", unhealthy))
	check("unhealthy")
	objs = with(objs, config.WorkloadEntry, "own", &networking.WorkloadEntry{Address: "10.0.0.2"}, "app=api")
	check("a WorkloadEntry")
	registerAll(t, rt, join("", "10.0.0.2", "api", reportsFor("own"), unhealthy))
	check("reported for")
	objs = objs.Without(config.Key{Kind: config.WorkloadEntry, Namespace: "shop", Name: "own"})
	check("no WorkloadEntry")
	for _, r := range []registry.Registration{one, two} {
		if err := rt.Remove(t.Context(), r.RegistrationKey, r.Session); err != nil {
			t.Fatal(err)
		}
		check("removed")
	}
}

// A change of health replaces the endpoints of the services that select the workload, and nothing
// else.
func TestHealthFlap(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rt := newRuntime(t)
		registerAll(t, rt, join("api", "10.0.0.1", "api"), join("api", "10.0.0.2", "api"))
		source := make(files)
		var contexts []*push.Context
		a := push.NewAssembler(push.AssemblerConfig{
			Sources: push.Sources{Objects: []push.Source[*config.Object]{{Source: source}}}, Deriver: entry.New(rt),
			Mesh:    &push.Mesh{Config: &mesh.MeshConfig{RootNamespace: "root"}, Domain: "cluster.local"},
			Publish: func(c *push.Context, _ push.Changes) { contexts = append(contexts, c) },
		})
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error)
		go func() { done <- a.Run(ctx) }()
		objs := shop(apiGroup())
		web := serviceEntry(networking.ServiceEntry_STATIC, "web.shop")
		web.Endpoints = []*networking.WorkloadEntry{{Address: "10.0.0.9"}}
		objs = with(objs, config.ServiceEntry, "web", web)
		all := []*config.Object{}
		for _, o := range objs.All() {
			o.Hash = config.HashOf(o)
			all = append(all, o)
		}
		updates := []feed.Update[*config.Object]{{Group: "g", Items: all}}
		source <- feed.Batch[*config.Object]{Source: "files", Full: true, Updates: updates}
		time.Sleep(time.Second)
		synctest.Wait()
		if len(contexts) != 1 {
			t.Fatalf("%d contexts at the start", len(contexts))
		}
		before := contexts[0].Inputs()
		api, other := registry.Key{Host: "api.shop", Namespace: "shop"}, registry.Key{Host: "web.shop",
			Namespace: "shop"}
		if n := before.Endpoints.At(api).Len(); n != 2 {
			t.Fatalf("%d endpoints in the first context", n)
		}
		registerAll(t, rt, join("api", "10.0.0.2", "api", unhealthy))
		time.Sleep(time.Second)
		synctest.Wait()
		if len(contexts) != 2 {
			t.Fatalf("%d contexts after the flap", len(contexts))
		}
		after := contexts[1].Inputs()
		if after.Objects != before.Objects || after.Services != before.Services ||
			after.Endpoints.At(other) != before.Endpoints.At(other) {
			t.Error("a change of health replaced more than the endpoints of its service")
		}
		sick := slices.Collect(func(yield func(string) bool) {
			for _, ep := range after.Endpoints.At(api).All() {
				if ep.Health == registry.Unhealthy && !yield(ep.Address) {
					return
				}
			}
		})
		if !slices.Equal(sick, []string{"10.0.0.2"}) {
			t.Errorf("unhealthy: %v", sick)
		}
		registerAll(t, rt, join("api", "10.0.0.1", "api")) // it reconnects: proxies get nothing
		time.Sleep(time.Second)
		synctest.Wait()
		if len(contexts) != 2 {
			t.Errorf("%d contexts after a reconnect, want 2", len(contexts))
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// files is a source of configuration that sends what the test sends.
type files chan feed.Batch[*config.Object]

func (f files) Name() string { return "files" }

func (f files) Run(ctx context.Context, out chan<- feed.Batch[*config.Object]) error {
	for {
		select {
		case b := <-f:
			out <- b
		case <-ctx.Done():
			return nil
		}
	}
}
