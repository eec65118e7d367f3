package push_test

import (
	"testing"
	"time"
	"unique"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	mesh "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1beta1"
	typev1beta1 "istio.io/api/type/v1beta1"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/push"
)

// Of the mesh, the namespace, the annotation and the labels, what is more specific takes precedence
// field by field. Variables and the fields of proxyHeaders are merged.
func TestProxyConfigLevels(t *testing.T) {
	t.Parallel()
	disabled := &mesh.ProxyConfig_ProxyHeaders_RequestId{Disabled: wrapperspb.Bool(true)}
	server := &mesh.ProxyConfig_ProxyHeaders_Server{Value: "a"}
	e := newEditor()
	m := *e.in.Mesh
	m.Config = proto.CloneOf(m.Config)
	m.Config.DefaultConfig = &mesh.ProxyConfig{
		Concurrency: wrapperspb.Int32(1), DrainDuration: durationpb.New(time.Second),
		ProxyMetadata:   map[string]string{"MESH": "mesh", "LEVEL": "mesh"},
		GatewayTopology: &mesh.Topology{NumTrustedProxies: 1, ProxyProtocol: &mesh.Topology_ProxyProtocolConfiguration{}},
		ProxyHeaders:    &mesh.ProxyConfig_ProxyHeaders{RequestId: disabled},
	}
	e.in.Mesh = &m
	put := func(namespace, name string, concurrency int32, labels map[string]string) {
		spec := &networking.ProxyConfig{Concurrency: wrapperspb.Int32(concurrency),
			EnvironmentVariables: map[string]string{"LEVEL": namespace + "/" + name}}
		if labels != nil {
			spec.Selector = &typev1beta1.WorkloadSelector{MatchLabels: labels}
		}
		e.put(config.ProxyConfig, namespace, name, spec)
	}
	put(m.Config.GetRootNamespace(), "mesh", 2, nil)
	put("a", "all", 3, nil)
	put("a", "web", 4, map[string]string{"app": "web"})
	c := push.Build(nil, e.in)
	annotated := func(n push.Node) push.Node {
		encoded, err := proto.Marshal(&mesh.ProxyConfig{Concurrency: wrapperspb.Int32(9),
			GatewayTopology: &mesh.Topology{NumTrustedProxies: 2}, ProxyHeaders: &mesh.ProxyConfig_ProxyHeaders{Server: server}})
		if err != nil {
			t.Fatal(err)
		}
		n.ProxyConfig = unique.Make(string(encoded))
		return n
	}
	traffic := &mesh.ProxyConfig{GatewayTopology: m.Config.DefaultConfig.GatewayTopology,
		ProxyHeaders: m.Config.DefaultConfig.ProxyHeaders}
	own := &mesh.ProxyConfig{GatewayTopology: &mesh.Topology{NumTrustedProxies: 2},
		ProxyHeaders: &mesh.ProxyConfig_ProxyHeaders{RequestId: disabled, Server: server}}
	for name, tc := range map[string]struct {
		node        push.Node
		concurrency int32
		level       string
		traffic     *mesh.ProxyConfig
	}{
		"mesh":                  {node("c", "10.0.0.1", "app=web"), 2, m.Config.GetRootNamespace() + "/mesh", traffic},
		"namespace":             {node("a", "10.0.0.1"), 3, "a/all", traffic},
		"labels":                {node("a", "10.0.0.1", "app=web"), 4, "a/web", traffic},
		"annotation":            {annotated(node("a", "10.0.0.1")), 9, "a/all", own},
		"annotation and labels": {annotated(node("a", "10.0.0.1", "app=web")), 4, "a/web", own},
	} {
		f := c.Classify(tc.node)
		want := &mesh.ProxyConfig{Concurrency: wrapperspb.Int32(tc.concurrency), DrainDuration: durationpb.New(time.Second),
			ProxyMetadata: map[string]string{"MESH": "mesh", "LEVEL": tc.level}}
		if !proto.Equal(f.AgentConfig, want) {
			t.Errorf("%s: the agent gets %v, want %v", name, f.AgentConfig, want)
		}
		if !proto.Equal(f.ProxyConfig, tc.traffic) {
			t.Errorf("%s: got %v, want %v", name, f.ProxyConfig, tc.traffic)
		}
	}
	one, other := c.Classify(node("a", "10.0.0.1")), c.Classify(node("a", "10.0.0.1", "app=web"))
	if one.ProxyConfig != other.ProxyConfig {
		t.Error("a setting of the agent changes what Envoy's resources depend on")
	}
}
