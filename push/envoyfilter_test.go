package push_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	extensions "istio.io/api/extensions/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/push"
)

// Patches that Istio ignores are left out. The others apply by priority, those of the root namespace first, then the older ones. Each one asks
// for a context, a version and metadata.
func TestPatches(t *testing.T) {
	t.Parallel()
	e := newEditor()
	any := &networking.EnvoyFilter_EnvoyConfigObjectMatch{}
	for i, f := range []struct {
		namespace, name string
		labels          map[string]string
		priority        int32
		matches         []*networking.EnvoyFilter_EnvoyConfigObjectMatch
	}{
		{"a", "late", nil, 1, []*networking.EnvoyFilter_EnvoyConfigObjectMatch{any}},
		{"a", "older", nil, 0, []*networking.EnvoyFilter_EnvoyConfigObjectMatch{nil,
			{Context: networking.EnvoyFilter_GATEWAY}, {Context: networking.EnvoyFilter_SIDECAR_INBOUND}}},
		{"a", "newer", map[string]string{"app": "web"}, 0, []*networking.EnvoyFilter_EnvoyConfigObjectMatch{
			{Proxy: &networking.EnvoyFilter_ProxyMatch{ProxyVersion: `^1\.31`}},
			{Proxy: &networking.EnvoyFilter_ProxyMatch{ProxyVersion: `^1\.30`}},
			{Proxy: &networking.EnvoyFilter_ProxyMatch{Metadata: map[string]string{"MESH_ID": "m"}}},
			{Proxy: &networking.EnvoyFilter_ProxyMatch{Metadata: map[string]string{"MESH_ID": "n"}}}}},
		{"root", "mesh", nil, 0, []*networking.EnvoyFilter_EnvoyConfigObjectMatch{any}},
		{"root", "first", nil, -1, []*networking.EnvoyFilter_EnvoyConfigObjectMatch{any}},
		{"b", "other", nil, 0, []*networking.EnvoyFilter_EnvoyConfigObjectMatch{any}},
	} {
		spec := &networking.EnvoyFilter{Priority: f.priority}
		if f.labels != nil {
			spec.WorkloadSelector = &networking.WorkloadSelector{Labels: f.labels}
		}
		for _, m := range f.matches {
			spec.ConfigPatches = append(spec.ConfigPatches, &networking.EnvoyFilter_EnvoyConfigObjectPatch{Match: m})
		}
		e.put(config.EnvoyFilter, f.namespace, f.name, spec)
		key := config.Key{Kind: config.EnvoyFilter, Namespace: f.namespace, Name: f.name}
		dated := *e.in.Objects.At(key)
		dated.Created = time.Unix(int64(i), 0)
		e.in.Objects = e.in.Objects.With(key, &dated)
	}
	replace := &networking.EnvoyFilter_Patch{Operation: networking.EnvoyFilter_Patch_REPLACE}
	e.put(config.EnvoyFilter, "a", "ignored", &networking.EnvoyFilter{ConfigPatches: []*networking.EnvoyFilter_EnvoyConfigObjectPatch{
		{ApplyTo: networking.EnvoyFilter_CLUSTER, Patch: replace}, {ApplyTo: networking.EnvoyFilter_HTTP_FILTER, Patch: replace}}})
	c := push.Build(nil, e.in)
	web := node("a", "10.0.0.1", "app=web")
	web.Metadata = labelLists.Of([]push.Label{{Key: "ISTIO_VERSION", Value: "1.31.0"}, {Key: "MESH_ID", Value: "m"}})
	gateway := node("a", "10.0.0.9")
	gateway.Type = push.Router
	for name, tc := range map[string]struct {
		node push.Node
		want []string
	}{
		"web": {web, []string{"root/first 0", "root/mesh 0", "a/older 0", "a/older 2", "a/newer 0", "a/newer 2",
			"a/late 0"}},
		"no version":     {node("a", "10.0.0.1", "app=web"), []string{"root/first 0", "root/mesh 0", "a/older 0", "a/older 2", "a/late 0"}},
		"gateway":        {gateway, []string{"root/first 0", "root/mesh 0", "a/older 0", "a/older 1", "a/late 0"}},
		"root namespace": {node("root", "10.0.0.1"), []string{"root/first 0", "root/mesh 0"}},
	} {
		var got []string
		for _, p := range c.Classify(tc.node).Patches.Items() {
			got = append(got, fmt.Sprintf("%s/%s %d", p.Filter.Namespace, p.Filter.Name, p.Index))
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s:\ngot  %q\nwant %q", name, got, tc.want)
		}
	}
	// Another object of the kind changes those alone that it selects.
	before := c.Classify(gateway)
	e.put(config.EnvoyFilter, "a", "newer", &networking.EnvoyFilter{WorkloadSelector: &networking.WorkloadSelector{
		Labels: map[string]string{"app": "web"}}})
	c = push.Build(c, e.in)
	if c.Classify(gateway) != before || len(c.Classify(web).Patches.Items()) != 5 {
		t.Error("a changed EnvoyFilter changed a proxy that it does not select, or not the one that it selects")
	}
}

// What stands for a TrafficExtension is made once, and stays while the object does.
func TestExtensionPatchesStay(t *testing.T) {
	t.Parallel()
	e := newEditor()
	e.put(config.TrafficExtension, "a", "script", &extensions.TrafficExtension{FilterConfig: &extensions.TrafficExtension_Lua{
		Lua: &extensions.LuaConfig{InlineCode: "function envoy_on_request(h) end"}}})
	c := push.Build(nil, e.in)
	before := c.Classify(node("a", "10.0.0.1"))
	e.put(config.EnvoyFilter, "b", "other", &networking.EnvoyFilter{})
	after := push.Build(c, e.in).Classify(node("a", "10.0.0.1"))
	if before.Patches == nil || before.Patches != after.Patches {
		t.Fatalf("the patches changed: %v, %v", before.Patches.Items(), after.Patches.Items())
	}
	p := before.Patches.Items()[0]
	if first, second := p.Spec(), p.Spec(); first != second {
		t.Error("each call of Spec makes the patches anew")
	}
}
