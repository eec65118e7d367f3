package xds

import (
	"fmt"
	"testing"
	"unique"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/push"
)

// groups is a Context that knows one WorkloadGroup, or none.
type groups struct {
	Context
	web *config.Object
}

func (g groups) Object(key config.Key) *config.Object {
	if g.web != nil && key == g.web.Key {
		return g.web
	}
	return nil
}

// A workload that registered with a group has the labels of that group, and its own beside them: as
// of now, and only if it registered.
func TestGroupLabels(t *testing.T) {
	t.Parallel()
	group := func(labels map[string]string) *config.Object {
		return &config.Object{Key: config.Key{Kind: config.WorkloadGroup, Namespace: "shop", Name: "web"},
			Spec: &networking.WorkloadGroup{Metadata: &networking.WorkloadGroup_ObjectMeta{Labels: labels},
				Template: &networking.WorkloadEntry{Labels: map[string]string{"app": "template", "t": "1"}}}}
	}
	s := &Server{}
	own := push.Node{ID: "web-1.shop", Namespace: "shop",
		Labels: s.nodes.labels.Of([]push.Label{{Key: "own", Value: "1"}, {Key: "tier", Value: "own"}})}
	st := &stream{server: s, proxy: &proxy{Node: own}}
	shown := func(web *config.Object) string { return fmt.Sprint(st.node(groups{web: web}).Labels.Items()) }
	first := group(map[string]string{"app": "web", "tier": "group"})
	if got, want := shown(first), "[{own 1} {tier own}]"; got != want {
		t.Errorf("not registered: got %s, want %s", got, want)
	}
	st.group = "web"
	want := "[{app web} {own 1} {t 1} {tier group}]"
	if got := shown(first); got != want {
		t.Errorf("registered: got %s, want %s", got, want)
	}
	if a, b := st.node(groups{web: first}), st.node(groups{web: group(map[string]string{"app": "web",
		"tier": "group"})}); a != b {
		t.Errorf("equal labels are told apart: %v, %v", a, b)
	}
	if got, want := shown(group(map[string]string{"app": "api"})), "[{app api} {own 1} {t 1} {tier own}]"; got != want {
		t.Errorf("the group changed: got %s, want %s", got, want)
	}
	probed := group(nil)
	probed.Spec.(*networking.WorkloadGroup).Probe = &networking.ReadinessProbe{PeriodSeconds: 3}
	if got, want := st.node(groups{web: probed}).Probe, unique.Make("\x20\x03"); got != want {
		t.Errorf("the probe is %q, want %q", got.Value(), want.Value())
	}
	if got := st.node(groups{web: first}).Probe; got != unique.Make("") {
		t.Errorf("a group without a probe has one: %v", got)
	}
	located := group(nil)
	located.Spec.(*networking.WorkloadGroup).Template.Locality = "eu/a/1"
	if got := st.node(groups{web: located}).Locality.String(); got != "eu/a/1" {
		t.Errorf("the locality is %s, want that of the template", got)
	}
	annotated := group(nil)
	annotated.Annotations = map[string]string{"prometheus.io/port": "9100", "proxy.istio.io/config": "statusPort: 15020"}
	if got := st.node(groups{web: annotated}); got.Application != "9100/metrics" || got.ProxyConfig.Value() == "" {
		t.Errorf("the annotations give %q and %q", got.Application, got.ProxyConfig.Value())
	}
	if got := st.node(groups{}); got != own {
		t.Errorf("the group is gone: got %v", got)
	}
	st.group = ""
	if got := st.node(groups{web: first}); got != own {
		t.Errorf("a reporter for an entry: got %v", got)
	}
}
