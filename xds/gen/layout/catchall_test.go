package layout

import (
	"testing"

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
