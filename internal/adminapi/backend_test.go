package adminapi

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/settings"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/registry/entry"
	"github.com/ashore-mesh/ashore/xds"
	"github.com/ashore-mesh/ashore/xds/ads"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// publish returns a context that is published; nil: none is.
func publish(c *push.Context) func() *push.Context { return func() *push.Context { return c } }

func noEntries() (none entry.Entries) { return none }

// twoTypes are what a proxy is sent that asks for clusters and endpoints.
func twoTypes(string) ([]xds.TypeDump, error) {
	return []xds.TypeDump{{TypeURL: resource.ClusterType}, {TypeURL: resource.EndpointType}}, nil
}

func noProxies() []xds.ProxyStatus { return nil }

// answers is an assembler that answers this.
type answers struct {
	Assembler
	status   push.Status
	problems []feed.Problem
	err      error
}

func (a answers) Status(context.Context) (push.Status, error) { return a.status, a.err }

func (a answers) Problems(context.Context) ([]feed.Problem, error) { return a.problems, a.err }

// newBackend answers from the objects of some files.
func newBackend(t *testing.T, texts ...string) *API {
	t.Helper()
	in := push.Inputs{Mesh: &push.Mesh{Config: config.DefaultMesh(), Domain: "cluster.local"}}
	for _, text := range texts {
		r := config.Parse("a.yaml", []byte(text))
		if feed.Errors(r.Problems) > 0 {
			t.Fatal(r.Problems)
		}
		for _, o := range r.Objects {
			in.Objects = in.Objects.With(o.Key, o)
		}
	}
	key := registry.Key{Host: "web", Namespace: "shop"}
	in.Services = in.Services.With(key, &registry.Service{Key: key})
	in.Endpoints = in.Endpoints.With(key, &registry.EndpointList{Items: make([]registry.Endpoint, 3)})
	return &API{Published: publish(push.Build(nil, in)), Entries: noEntries, Connected: noProxies, Resources: twoTypes,
		Record:   func(audit.Event) {},
		Settings: settings.Config{Warnings: []feed.Problem{{Severity: feed.Warning, Text: "of the settings"}}},
		Assembler: answers{status: push.Status{Builds: 2},
			problems: []feed.Problem{{Severity: feed.Error}, {Severity: feed.Warning}}}}
}

func problemsOf(a *API) []feed.Problem {
	all, _ := a.Problems(context.Background(), admin.None{}) // it has no error
	return all
}

func statusOf(a *API) admin.Status {
	s, _ := a.Status(context.Background(), admin.None{}) // it has no error
	return s
}

const gatewayFile = `apiVersion: networking.istio.io/v1beta1
kind: Gateway
metadata: {name: gw, namespace: shop, labels: {team: a}}
spec:
  selector: {app: gw}
  servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ["*"]}]
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: gw, namespace: other}
spec:
  selector: {app: gw}
  servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ["*"]}]
`

func TestBackendStatus(t *testing.T) {
	t.Parallel()
	b := newBackend(t, gatewayFile)
	if p := problemsOf(b); len(p) != 3 || p[0].Text != "of the settings" {
		t.Errorf("problems %v, want that of the settings first", p)
	}
	s := statusOf(b)
	want := admin.ConfigStatus{Objects: map[string]int{"Gateway": 2}, Services: 1, Endpoints: 3, Errors: 1, Warnings: 2,
		Contexts: 2}
	if d := cmp.Diff(want, s.Config); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if !s.Ready {
		t.Errorf("status %+v, want ready", s)
	}
	b.Connected = func() []xds.ProxyStatus {
		return []xds.ProxyStatus{{ID: "a", Types: []xds.TypeStatus{{TypeURL: resource.ListenerType,
			Status: ads.Status{Rejected: []ads.Rejected{{Name: "x", Message: "no"}}}}}}}
	}
	if got := statusOf(b).Config.Warnings; got != 3 {
		t.Errorf("%d warnings with a rejection, want 3", got)
	}
}

// What metrics are taken from asks no proxy.
func TestBackendSummary(t *testing.T) {
	t.Parallel()
	b := newBackend(t, gatewayFile)
	b.Connected = func() []xds.ProxyStatus {
		t.Error("the proxies were asked for")
		return nil
	}
	if got := b.Summary().Config; got.Endpoints != 3 || got.Errors != 1 {
		t.Errorf("got %+v", got)
	}
}

// Before the first context nothing is ready, and the sources that are missing are named.
func TestBackendWaiting(t *testing.T) {
	t.Parallel()
	b := &API{Published: publish(nil), Entries: noEntries, Connected: noProxies, Resources: twoTypes,
		Record: func(audit.Event) {}, Assembler: answers{status: push.Status{Waiting: []string{"consul:dc1"}}}}
	s := statusOf(b)
	if s.Ready || !cmp.Equal(s.Waiting, []string{"the first build", "consul:dc1"}) {
		t.Errorf("ready %v, waiting for %q", s.Ready, s.Waiting)
	}
	if p := problemsOf(b); p == nil || len(p) != 0 {
		t.Errorf("problems %#v, want an empty list: programs read [], not null", p)
	}
	if o, err := b.Objects(t.Context(), admin.ObjectQuery{Kind: "gateway"}); err != nil || len(o) != 0 {
		t.Errorf("objects %v, %v; want none", o, err)
	}
}

func TestBackendObjects(t *testing.T) {
	t.Parallel()
	b := newBackend(t, gatewayFile)
	for _, tc := range []struct {
		kind, namespace, name string
		want                  []string
	}{
		{"gateway", "", "", []string{"other/gw", "shop/gw"}},
		{"gw", "shop", "", []string{"shop/gw"}},
		{"Gateways", "", "gw", []string{"other/gw", "shop/gw"}},
		{"vs", "", "", nil},
	} {
		got, err := b.Objects(t.Context(), admin.ObjectQuery{Kind: tc.kind, Namespace: tc.namespace, Name: tc.name})
		var names []string
		for _, o := range got {
			names = append(names, o.Metadata.Namespace+"/"+o.Metadata.Name)
		}
		if err != nil || !cmp.Equal(names, tc.want) {
			t.Errorf("%s %s/%s: %q, %v; want %q", tc.kind, tc.namespace, tc.name, names, err, tc.want)
		}
	}
	one, err := b.Objects(t.Context(), admin.ObjectQuery{Kind: "gw", Namespace: "shop", Name: "gw"})
	if err != nil {
		t.Fatal(err)
	}
	if o := one[0]; o.APIVersion != "networking.istio.io/v1" || o.Kind != "Gateway" ||
		o.Metadata.Labels["team"] != "a" || o.Origin.File != "a.yaml" || o.Origin.Line != 1 ||
		!strings.Contains(string(o.Spec), `"selector"`) {
		t.Errorf("object %+v", o)
	}
	for _, tc := range []struct {
		kind, name string
		is         error
		want       string
	}{
		{"gw", "nobody", admin.ErrNotFound, `there is no Gateway "nobody"`},
		{"gatway", "", admin.ErrInvalid, `did you mean "gateway"?`},
		{"WasmPlugin", "", admin.ErrInvalid, "WasmPlugin is not supported yet"},
	} {
		if _, err := b.Objects(t.Context(), admin.ObjectQuery{Kind: tc.kind, Name: tc.name}); !errors.Is(err, tc.is) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s %s: error %v, want %q", tc.kind, tc.name, err, tc.want)
		}
	}
}

// A dump shows one type or all, and is in the audit log.
func TestBackendDump(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	var events []audit.Event
	b.Record = func(e audit.Event) { events = append(events, e) }
	dump := func(typ string) (admin.Dump, error) {
		return b.Dump(admin.WithCaller(t.Context(), "ann", admin.Operator), admin.DumpRequest{Proxy: "web", Type: typ})
	}
	if d, err := dump("EDS"); err != nil || len(d.Types) != 1 || d.Types[0].Type != "eds" {
		t.Errorf("dump %+v, %v; want endpoints alone", d, err)
	}
	if d, err := dump(""); err != nil || len(d.Types) != 2 {
		t.Errorf("dump %+v, %v; want both types", d, err)
	}
	_, err := dump("rds")
	if !errors.Is(err, admin.ErrNotFound) || !strings.Contains(err.Error(), "web does not subscribe to rds") {
		t.Errorf("got %v, want the types that there are", err)
	}
	want := []audit.Event{{Action: audit.DumpRead, Actor: "ann", Target: "web", Details: map[string]string{"type": "EDS"}},
		{Action: audit.DumpRead, Actor: "ann", Target: "web", Details: map[string]string{"type": "all"}},
		{Action: audit.DumpRead, Actor: "ann", Target: "web", Details: map[string]string{"type": "rds"}}}
	if d := cmp.Diff(want, events); d != "" {
		t.Errorf("recorded (-want +got):\n%s", d)
	}
}
