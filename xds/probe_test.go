package xds_test

import (
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	mesh "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/xds"
	"github.com/ashore-mesh/ashore/xds/gen"
	"github.com/ashore-mesh/ashore/xds/gen/agent"
)

// probed publishes a group shop/web with that probe; remove: without the group.
func (p *plane) probed(probe *networking.ReadinessProbe, remove bool) {
	in := push.Inputs{Mesh: &push.Mesh{Config: &mesh.MeshConfig{RootNamespace: "istio-system"},
		Domain: "cluster.local"}}
	if !remove {
		key := config.Key{Kind: config.WorkloadGroup, Namespace: "shop", Name: "web"}
		in.Objects = in.Objects.With(key, &config.Object{Key: key,
			Spec: &networking.WorkloadGroup{Template: &networking.WorkloadEntry{ServiceAccount: "web"}, Probe: probe}})
	}
	p.server.Publish(push.Build(nil, in), time.Now())
}

// Who registered from a group is told its probe as it is, also that there is none, and on each
// stream anew; who did not is answered all the same.
func TestGroupProbe(t *testing.T) {
	t.Parallel()
	a, rt := newAuthority(t), newRuntime(t)
	p := newSecurePlane(t, a, func(c *xds.Config) { c.Runtime, c.Generator = rt, gen.New() })
	first := &networking.ReadinessProbe{PeriodSeconds: 3,
		HealthCheckMethod: &networking.ReadinessProbe_HttpGet{HttpGet: &networking.HTTPHealthCheckConfig{Path: "/a",
			Port: 80}}}
	second := &networking.ReadinessProbe{HealthCheckMethod: &networking.ReadinessProbe_Exec{Exec: &networking.ExecHealthCheckConfig{Command: []string{"id"}}}}
	p.probed(first, false)
	hears := func(what string, l *line, want *networking.ReadinessProbe) {
		t.Helper()
		r, err := l.Recv()
		if err != nil || r.TypeUrl != xds.ProbeType {
			t.Fatalf("%s: %v, %v", what, r.GetTypeUrl(), err)
		}
		l.says(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: r.TypeUrl, ResponseNonce: r.Nonce})
		if want == nil {
			if len(r.Resources) > 0 {
				t.Errorf("%s: got %v", what, r.Resources)
			}
			return
		}
		var got networking.ReadinessProbe
		if len(r.Resources) != 1 || r.Resources[0].Name != agent.ProbeName ||
			r.Resources[0].Resource.UnmarshalTo(&got) != nil || !proto.Equal(&got, want) {
			t.Errorf("%s: got %v, want %v", what, r.Resources, want)
		}
	}
	group := map[string]any{"AUTO_REGISTER_GROUP": "web", "INSTANCE_IPS": "127.0.0.9"}
	l := call(t, p, a.web())
	l.ask(node(t, group), xds.ProbeType)
	hears("it connects", l, first)
	p.probed(second, false)
	hears("an edit", l, second)
	p.probed(nil, false)
	hears("it vanishes", l, &networking.ReadinessProbe{})
	p.probed(nil, true)
	hears("the group is deleted", l, nil)
	p.probed(first, false)
	hears("the group is back", l, first)

	again := call(t, p, a.web())
	again.ask(node(t, group), xds.ProbeType)
	hears("it connects anew", again, first)
	other := call(t, p, a.web())
	other.ask(node(t, map[string]any{}), xds.ProbeType)
	hears("it did not register", other, nil)
	other.ask(nil, "type.googleapis.com/ashore.v9.Unheard")
	if r, err := other.Recv(); err != nil || r.TypeUrl != "type.googleapis.com/ashore.v9.Unheard" ||
		len(r.Resources) > 0 {
		t.Errorf("a type that it does not know: %v, %v", r, err)
	}
}
