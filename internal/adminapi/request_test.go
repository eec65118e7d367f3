package adminapi

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/settings"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/xds"
	"github.com/ashore-mesh/ashore/xds/ads"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// A request is followed through what its caller is sent, whoever names the caller how, and that is
// recorded.
func TestRouteRequest(t *testing.T) {
	t.Parallel()
	const node = "sidecar~10.0.0.1~web-1.shop~x"
	var recorded []audit.Event
	a := &API{Record: func(e audit.Event) { recorded = append(recorded, e) },
		Connected: func() []xds.ProxyStatus {
			return []xds.ProxyStatus{{ID: node, Node: push.Node{ID: "web-1.shop", Namespace: "shop", ServiceAccount: "web"}}}
		},
		Resources: func(id string) ([]xds.TypeDump, error) {
			if id != node {
				t.Errorf("asked for the resources of %s", id)
			}
			return nil, nil
		}}
	for _, from := range []string{"web-1.shop", "shop/web", node} {
		got, err := a.RouteRequest(t.Context(), admin.RequestQuery{From: from, Host: "x.example", Port: 80, Path: "/"})
		if err != nil || got.Proxy != node || len(got.Hops) != 0 {
			t.Errorf("%s: got %+v, %v", from, got, err)
		}
	}
	if len(recorded) != 3 || recorded[0].Action != audit.DumpRead || recorded[0].Target != node {
		t.Errorf("the audit log has %+v", recorded)
	}
	if _, err := a.RouteRequest(t.Context(), admin.RequestQuery{From: "shop/api"}); !errors.Is(err, admin.ErrNotFound) {
		t.Errorf("nobody: %v", err)
	}
}

// The level of the log changes for all parts at once, and only to one that there is. Each change is in
// the audit log.
func TestSetLogLevel(t *testing.T) {
	t.Parallel()
	var events []audit.Event
	a := &API{Log: hclog.New(&hclog.LoggerOptions{Level: hclog.Info, Output: new(strings.Builder)}),
		Record: func(e audit.Event) { events = append(events, e) }}
	part := a.Log.Named("ca")
	for _, tc := range []struct{ set, want string }{{"", "info"}, {"DEBUG", "debug"}, {"", "debug"}, {"warn", "warn"}} {
		got, err := a.SetLogLevel(admin.WithCaller(t.Context(), "ann", admin.Operator), admin.LogLevel{Level: tc.set})
		if err != nil || got.Level != tc.want || part.GetLevel().String() != tc.want {
			t.Errorf("%q: got %v, %v, of a part %s", tc.set, got, err, part.GetLevel())
		}
	}
	for _, level := range []string{"loud", "off"} {
		if _, err := a.SetLogLevel(t.Context(), admin.LogLevel{Level: level}); !errors.Is(err, admin.ErrInvalid) {
			t.Errorf("%s: %v", level, err)
		}
	}
	want := []audit.Event{{Action: "log.level", Actor: "ann", Target: "ashored", Details: map[string]string{"level": "debug"}},
		{Action: "log.level", Actor: "ann", Target: "ashored", Details: map[string]string{"level": "warn"}}}
	if diff := cmp.Diff(want, events); diff != "" {
		t.Errorf("audit log (-want +got):\n%s", diff)
	}
}

// A resource that several proxies rejected is one problem, in one line.
func TestRejectedProblems(t *testing.T) {
	t.Parallel()
	object := func(name string) *config.Object {
		return &config.Object{Key: config.Key{Kind: config.EnvoyFilter, Namespace: "shop", Name: name},
			Origin: config.Origin{Source: "files", File: name + ".yaml", Line: 3}}
	}
	bad, other := &resource.Patch{Object: object("bad"), Field: "spec.configPatches[1]"},
		&resource.Patch{Object: object("other"), Field: "spec.configPatches[0]"}
	proxy := func(id, name, message string, patches ...*resource.Patch) xds.ProxyStatus {
		return xds.ProxyStatus{ID: id, Node: push.Node{ID: id}, Types: []xds.TypeStatus{{TypeURL: resource.ListenerType,
			Status: ads.Status{Rejected: []ads.Rejected{{Name: name, Message: message, Patches: patches, Changed: min(len(patches), 1)}}}}}}
	}
	a := &API{Settings: settings.Config{}, Connected: func() []xds.ProxyStatus {
		return []xds.ProxyStatus{proxy("a.shop", "x", "Error adding listener(s) x: no filter\nx: no such port.\nx: no such port.\n"),
			proxy("b.shop", "x", "in other words"),
			proxy("c.shop", "y", "y: no Lua", bad, other), proxy("c.shop", "z", "z: no Lua", bad, other), {ID: "d.shop"}}
	}}
	got := a.rejected()
	const want = `rejected by 2, such as a.shop, which keep the previous version: lds x: Error adding listener(s) x: no filter; ` +
		`x: no such port. "ashorectl proxy-status a.shop" shows all of it`
	if len(got) != 2 || got[1].Text != want || got[1].IsError() {
		t.Fatalf("got %+v", got)
	}
	const blame = `bad.yaml:3: EnvoyFilter shop/bad spec.configPatches[1]: rejected by 1, such as c.shop, which keep the previous ` +
		`version: lds y (and 1 more): y: no Lua. Patches, first those changed since the last accepted version: ` +
		`EnvoyFilter shop/bad spec.configPatches[1] (bad.yaml:3), EnvoyFilter shop/other spec.configPatches[0] (other.yaml:3). ` +
		`"ashorectl proxy-status c.shop" shows all of it`
	if !got[0].IsError() || got[0].String() != blame {
		t.Errorf("got  %s\nwant %s", got[0], blame)
	}
}

// Nothing decides about a service without endpoints, and that is said.
func TestExplainWithoutEndpoints(t *testing.T) {
	t.Parallel()
	a := twoPorts(t)
	in := a.Published().Inputs()
	for key := range in.Endpoints.All() {
		in.Endpoints = in.Endpoints.Without(key)
	}
	a.Published = publish(push.Build(nil, in))
	_, err := a.Explain(t.Context(), admin.ExplainRequest{From: "shop/web", To: "api.example:80"})
	if !errors.Is(err, admin.ErrNotFound) || !strings.Contains(err.Error(), "the service api.example has no endpoints") {
		t.Errorf("got %v", err)
	}
}
