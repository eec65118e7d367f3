package push_test

import (
	"slices"
	"strings"
	"testing"

	networking "istio.io/api/networking/v1alpha3"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/push"
)

func route(t *testing.T, text string) *networking.HTTPRoute {
	t.Helper()
	out := &networking.HTTPRoute{}
	if err := protojson.Unmarshal([]byte(text), out); err != nil {
		t.Fatal(text, err)
	}
	return out
}

// The routes of a delegate take the place of the route that delegates, as far as their matches are
// compatible.
func TestDelegate(t *testing.T) {
	t.Parallel()
	const to = `"route": [{"destination": {"host": "x"}}]`
	merged := func(rest string) string {
		return strings.ReplaceAll(`{`+rest+`}`, `"x"`, `"x.team.svc.cluster.local"`)
	}
	for name, c := range map[string]struct{ root, leaf, want string }{
		"no matches": {``, to, merged(to)},
		"only the root matches": {`"match": [{"uri": {"prefix": "/a"}}, {"port": 80}]`, to,
			merged(`"match": [{"uri": {"prefix": "/a"}}, {"port": 80}], ` + to)},
		"only the delegate matches": {``, `"match": [{"uri": {"prefix": "/a"}}], ` + to,
			merged(`"match": [{"uri": {"prefix": "/a"}}], ` + to)},
		"the first of two": {`"match": [{"uri": {"prefix": "/a"}}, {"uri": {"prefix": "/b"}}]`,
			`"match": [{"uri": {"prefix": "/a/c"}}], ` + to, merged(`"match": [{"uri": {"prefix": "/a/c"}}], ` + to)},
		"both conditions": {
			`"match": [{"name": "r", "uri": {"prefix": "/a"}, "headers": {"a": {"exact": "1"}}, "gateways": ["mesh", "edge"]}]`,
			`"match": [{"name": "d", "method": {"exact": "GET"}, "headers": {"b": {}}, "gateways": ["mesh"]}], ` + to,
			merged(`"match": [{"name": "r-d", "uri": {"prefix": "/a"}, "method": {"exact": "GET"},
				"headers": {"a": {"exact": "1"}, "b": {}}, "gateways": ["mesh"]}], ` + to)},
		"settings": {
			`"name": "r", "timeout": "1s", "retries": {"attempts": 2}, "headers": {"request": {"set": {"a": "1"}}}`,
			`"name": "d", "timeout": "2s", ` + to,
			merged(`"name": "r-d", "timeout": "2s", "retries": {"attempts": 2},
				"headers": {"request": {"set": {"a": "1"}}}, ` + to)},
		"other path":       {`"match": [{"uri": {"prefix": "/a"}}]`, `"match": [{"uri": {"prefix": "/b"}}], ` + to, ``},
		"wider path":       {`"match": [{"uri": {"exact": "/a"}}]`, `"match": [{"uri": {"prefix": "/a"}}], ` + to, ``},
		"two expressions":  {`"match": [{"uri": {"regex": "/a"}}]`, `"match": [{"uri": {"regex": "/a"}}], ` + to, ``},
		"other header":     {`"match": [{"headers": {"a": {"exact": "1"}}}]`, `"match": [{"headers": {"a": {"exact": "2"}}}], ` + to, ``},
		"other parameter":  {`"match": [{"queryParams": {"a": {"exact": "1"}}}]`, `"match": [{"queryParams": {"a": {"exact": "2"}}}], ` + to, ``},
		"other port":       {`"match": [{"port": 80}]`, `"match": [{"port": 81}], ` + to, ``},
		"other case":       {`"match": [{"uri": {"exact": "/a"}, "ignoreUriCase": true}]`, `"match": [{"uri": {"exact": "/a"}}], ` + to, ``},
		"other gateway":    {`"match": [{"gateways": ["mesh"]}]`, `"match": [{"gateways": ["edge"]}], ` + to, ``},
		"other labels":     {`"match": [{"sourceLabels": {"a": "1"}}]`, `"match": [{"sourceLabels": {"a": "2"}}], ` + to, ``},
		"other namespace":  {`"match": [{"sourceNamespace": "a"}]`, `"match": [{"sourceNamespace": "b"}], ` + to, ``},
		"one of two leafs": {`"match": [{"port": 80}]`, `"match": [{"port": 80}, {"port": 81}], ` + to, ``},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEditor()
			root := strings.TrimSuffix(`{"delegate": {"name": "d", "namespace": "team"}, `+c.root, ", ") + `}`
			e.put(config.VirtualService, "shop", "r", &networking.VirtualService{Hosts: []string{"web"},
				Http: []*networking.HTTPRoute{route(t, root), route(t, `{"redirect": {"uri": "/last"}}`)}})
			e.put(config.VirtualService, "team", "d", &networking.VirtualService{
				Http: []*networking.HTTPRoute{route(t, `{`+c.leaf+`}`)}})
			vs := onlyVirtualService(t, push.Build(nil, e.in))
			routes := vs.Spec.Http
			if last := routes[len(routes)-1]; last.Redirect == nil {
				t.Error("the route of its own is not last")
			}
			if c.want == "" {
				if len(routes) != 1 || len(vs.Contradicting) != 1 {
					t.Errorf("got %v, %d contradicting, want none of the delegate", routes, len(vs.Contradicting))
				}
				return
			}
			want := route(t, c.want)
			for _, m := range want.Match {
				for i, g := range m.Gateways {
					m.Gateways[i] = strings.Replace(g, "edge", "shop/edge", 1)
				}
			}
			if len(routes) != 2 || !proto.Equal(routes[0], want) {
				t.Errorf("got  %v\nwant %v", routes, want)
			}
		})
	}
}

func onlyVirtualService(t *testing.T, c *push.Context) *push.VirtualService {
	t.Helper()
	all := slices.Collect(c.VirtualServices())
	if len(all) != 1 {
		t.Fatalf("%d VirtualServices, want the one with hosts", len(all))
	}
	return all[0]
}

// A route takes effect when its delegate appears, and only if the delegate is exported to it.
func TestDelegateChanges(t *testing.T) {
	t.Parallel()
	e := newEditor()
	delegate := func(exportTo ...string) {
		e.put(config.VirtualService, "team", "d", &networking.VirtualService{ExportTo: exportTo,
			Http: []*networking.HTTPRoute{route(t, `{"redirect": {"uri": "/"}}`)}})
	}
	e.put(config.VirtualService, "shop", "r", &networking.VirtualService{Hosts: []string{"web"},
		Http: []*networking.HTTPRoute{route(t, `{"delegate": {"name": "d", "namespace": "team"}}`)}})
	var c *push.Context
	for i, step := range []struct {
		change      func()
		routes, bad int
	}{
		{func() {}, 0, 1},
		{func() { delegate() }, 1, 0},
		{func() { delegate(".") }, 0, 1},
		{func() { delegate("shop") }, 1, 0},
		{func() {
			e.in.Mesh = &push.Mesh{Config: proto.CloneOf(e.in.Mesh.Config), Domain: e.in.Mesh.Domain}
			e.in.Mesh.Config.DefaultVirtualServiceExportTo = []string{"."}
			delegate()
		}, 0, 1},
		{func() { e.in.Mesh = testMesh() }, 1, 0},
		{func() { e.remove(config.VirtualService, "team", "d") }, 0, 1},
	} {
		step.change()
		c = push.Build(c, e.in)
		vs := onlyVirtualService(t, c)
		if bad := c.BadDelegates(vs); len(vs.Spec.Http) != step.routes || len(bad) != step.bad {
			t.Errorf("step %d: %d routes and %d bad delegates, want %d and %d", i, len(vs.Spec.Http), len(bad),
				step.routes, step.bad)
		}
	}
}
