package gen

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/ashore-mesh/ashore/internal/testenvoy"
	"github.com/ashore-mesh/ashore/xds/gen/envoy"
)

// acceptedByEnvoy fails the test when Envoy refuses the listeners.
func acceptedByEnvoy(t *testing.T, listeners []*listenerv3.Listener) {
	t.Helper()
	envoyAccepts(t, listeners, nil)
}

// envoyAccepts fails the test when Envoy refuses one of the resources or warns of one.
func envoyAccepts(t *testing.T, listeners []*listenerv3.Listener, clusters []*clusterv3.Cluster) {
	t.Helper()
	h2, err := anypb.New(&httpv3.HttpProtocolOptions{UpstreamProtocolOptions: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_{
		ExplicitHttpConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig{
			ProtocolConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_Http2ProtocolOptions{Http2ProtocolOptions: &corev3.Http2ProtocolOptions{}},
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	control := &clusterv3.Cluster{
		Name:                          "xds",
		ClusterDiscoveryType:          &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC},
		ConnectTimeout:                durationpb.New(1e9),
		TypedExtensionProtocolOptions: map[string]*anypb.Any{"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": h2},
		LoadAssignment: &endpointv3.ClusterLoadAssignment{ClusterName: "xds",
			Endpoints: []*endpointv3.LocalityLbEndpoints{{
				LbEndpoints: []*endpointv3.LbEndpoint{{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{
					Endpoint: &endpointv3.Endpoint{Address: envoy.SocketAddress("127.0.0.1", 1)},
				}}},
			}}},
	}
	agent := proto.Clone(control).(*clusterv3.Cluster)
	agent.Name, agent.LoadAssignment.ClusterName = envoy.AgentCluster, envoy.AgentCluster
	bootstrap := &bootstrapv3.Bootstrap{
		Node: &corev3.Node{Id: "test", Cluster: "test"},
		LayeredRuntime: &bootstrapv3.LayeredRuntime{Layers: []*bootstrapv3.RuntimeLayer{{
			Name: "test", // as in the bootstrap that the agent writes
			LayerSpecifier: &bootstrapv3.RuntimeLayer_StaticLayer{StaticLayer: &structpb.Struct{Fields: map[string]*structpb.Value{
				"re2.max_program_size.error_level": structpb.NewNumberValue(32768),
			}}},
		}}},
		DynamicResources: &bootstrapv3.Bootstrap_DynamicResources{AdsConfig: &corev3.ApiConfigSource{
			ApiType:             corev3.ApiConfigSource_DELTA_GRPC,
			TransportApiVersion: corev3.ApiVersion_V3,
			GrpcServices: []*corev3.GrpcService{{TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{
				EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{ClusterName: "xds"},
			}}},
		}},
		StaticResources: &bootstrapv3.Bootstrap_StaticResources{Listeners: listeners,
			Clusters: append(clusters, control, agent)},
	}
	text, err := protojson.Marshal(bootstrap)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "envoy.json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	cmd := exec.CommandContext(t.Context(), testenvoy.Path(t), "--mode", "validate", "-c", file, "--log-level",
		"warning")
	cmd.Env = append(os.Environ(), "OTEL_RESOURCE_ATTRIBUTES=service.name=test") // as the agent sets it
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		t.Fatalf("envoy refuses: %v\n%s", err, out.String())
	}
	if bytes.Contains(out.Bytes(), []byte("[warning]")) {
		t.Errorf("envoy warns:\n%s", out.String())
	}
}
