package layout

import (
	"testing"

	mesh "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/xds/gen/gentest"
)

func TestCatchAllCluster(t *testing.T) {
	t.Parallel()
	sc := gentest.Scope()
	sc.Sidecar = &push.SidecarConfig{Object: &config.Object{},
		Spec: &networking.Sidecar{OutboundTrafficPolicy: &networking.OutboundTrafficPolicy{
			Mode: networking.OutboundTrafficPolicy_ALLOW_ANY, EgressProxy: &networking.Destination{Host: "egress",
				Port: &networking.PortSelector{Number: 8080}, Subset: "a"},
		}}}
	if got, want := CatchAllCluster(sc), "outbound|8080|a|egress"; got != want {
		t.Errorf("with an egress proxy: got %s, want %s", got, want)
	}
	sc.Sidecar.Spec.OutboundTrafficPolicy = &networking.OutboundTrafficPolicy{Mode: networking.OutboundTrafficPolicy_REGISTRY_ONLY}
	if got, want := CatchAllCluster(sc), "BlackHoleCluster"; got != want {
		t.Errorf("registry only: got %s, want %s", got, want)
	}
	sc.Sidecar.Spec.OutboundTrafficPolicy = nil
	if got, want := CatchAllCluster(sc), "PassthroughCluster"; got != want {
		t.Errorf("nothing said: got %s, want %s", got, want)
	}
}

// The mesh's mode ALLOW_ANY_DYNAMIC_DNS is for sidecars whose Sidecar has none of its own.
func TestCatchAllRequests(t *testing.T) {
	t.Parallel()
	own := &push.SidecarConfig{Object: &config.Object{}, Spec: &networking.Sidecar{
		OutboundTrafficPolicy: &networking.OutboundTrafficPolicy{Mode: networking.OutboundTrafficPolicy_ALLOW_ANY}}}
	for name, c := range map[string]struct {
		node    push.NodeType
		sidecar *push.SidecarConfig
		want    string
	}{
		"sidecar":            {push.Sidecar, nil, "AllowAnyDynamicDNSCluster"},
		"gateway":            {push.Router, nil, "PassthroughCluster"},
		"policy of its own":  {push.Sidecar, own, "PassthroughCluster"},
		"Sidecar without it": {push.Sidecar, &push.SidecarConfig{Spec: &networking.Sidecar{}}, "AllowAnyDynamicDNSCluster"},
	} {
		sc := gentest.Scope()
		m := config.DefaultMesh()
		m.OutboundTrafficPolicy.Mode = mesh.MeshConfig_OutboundTrafficPolicy_ALLOW_ANY_DYNAMIC_DNS
		sc.Type, sc.Sidecar, sc.Mesh = c.node, c.sidecar, &push.Mesh{Config: m}
		if got := CatchAllRequests(sc); got != c.want {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
		if got := CatchAllCluster(sc); got != "PassthroughCluster" {
			t.Errorf("%s: connections go to %s", name, got)
		}
	}
}
