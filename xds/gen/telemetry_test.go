package gen

import (
	"testing"

	telemetry "istio.io/api/telemetry/v1alpha1"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// Proxies with the same telemetry share their listeners, by pointer. A Telemetry changes those of
// the proxies that it selects, and nothing but listeners.
func TestTelemetryIsShared(t *testing.T) {
	t.Parallel()
	g, in := New(), addressed(bigMesh(3))
	type layers struct{ listeners, clusters, routes *resource.Layer }
	of := func(c *push.Context, namespace string) layers {
		sc := c.Scope(c.Classify(push.Node{Namespace: namespace}))
		return layers{g.Set(resource.ListenerType, sc).Shared, g.Set(resource.ClusterType, sc).Shared,
			g.Set(resource.RouteType, sc).Shared}
	}
	before := push.Build(nil, in)
	a, b := of(before, "a"), of(before, "b")
	if a != b {
		t.Error("two namespaces without Telemetry objects do not share their resources")
	}
	o := &config.Object{Key: config.Key{Kind: config.Telemetry, Namespace: "b", Name: "logs"}, Hash: 1,
		Spec: &telemetry.Telemetry{AccessLogging: []*telemetry.AccessLogging{
			{Providers: []*telemetry.ProviderRef{{Name: config.EnvoyProvider}}}}}}
	in.Objects = in.Objects.With(o.Key, o)
	after := push.Build(before, in)
	if of(after, "a") != a {
		t.Error("a Telemetry of namespace b changes resources of namespace a")
	}
	changed := of(after, "b")
	if changed.listeners == b.listeners || changed.clusters != b.clusters || changed.routes != b.routes {
		t.Errorf("the Telemetry changes listeners: %v, clusters: %v, routes: %v; want the first alone",
			changed.listeners != b.listeners, changed.clusters != b.clusters, changed.routes != b.routes)
	}
}
