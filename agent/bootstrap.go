package agent

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	overloadv3 "github.com/envoyproxy/go-control-plane/envoy/config/overload/v3"
	connectionsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/resource_monitors/downstream_connections/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
)

// Names of static clusters; Istio's, so that dashboards find them.
const (
	clusterXDS     = "xds-grpc"
	clusterSDS     = "sds-grpc"
	clusterMetrics = "prometheus_stats"
	clusterAgent   = "agent"
)

// Bootstrap returns Envoy's first configuration for settings that Complete has accepted. With Dev Envoy asks the control
// plane itself; otherwise it asks the agent for everything, its key and certificates too, over a unix socket.
func Bootstrap(s *Settings) (*bootstrapv3.Bootstrap, error) {
	n, err := node(s, streamConfig)
	if err != nil {
		return nil, err
	}
	overload, err := overloadManager(s)
	if err != nil {
		return nil, err
	}
	listeners, err := staticListeners(s)
	if err != nil {
		return nil, err
	}
	clusters, err := staticClusters(s)
	if err != nil {
		return nil, err
	}
	b := &bootstrapv3.Bootstrap{
		Node:             n,
		Admin:            &bootstrapv3.Admin{Address: s.adminAddress(), IgnoreGlobalConnLimit: true},
		StaticResources:  &bootstrapv3.Bootstrap_StaticResources{Clusters: clusters, Listeners: listeners},
		DynamicResources: dynamicResources(),
		OverloadManager:  overload,
		StatsConfig:      statsConfig(),
		// Most counters of most clusters are never touched: they cost nothing until they are.
		DeferredStatOptions: &bootstrapv3.Bootstrap_DeferredStatOptions{EnableDeferredCreationStats: true},
		LayeredRuntime:      runtimeLayer(),
	}
	if err := b.ValidateAll(); err != nil {
		return nil, fmt.Errorf("bootstrap of Envoy: %w", err)
	}
	return b, nil
}

// BootstrapJSON is Bootstrap as the file that Envoy reads; the same settings give the same bytes.
func BootstrapJSON(s *Settings) ([]byte, error) {
	b, err := Bootstrap(s)
	if err != nil {
		return nil, err
	}
	raw, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(b)
	if err != nil {
		return nil, fmt.Errorf("encode bootstrap: %w", err)
	}
	var out bytes.Buffer
	if err := json.Indent(&out, raw, "", "  "); err != nil { // protojson's own spacing differs from build to build
		return nil, fmt.Errorf("indent bootstrap: %w", err)
	}
	out.WriteByte('\n')
	return out.Bytes(), nil
}

// dynamicResources makes Envoy ask the control plane for clusters and listeners, over one stream of differences.
func dynamicResources() *bootstrapv3.Bootstrap_DynamicResources {
	ads := func() *corev3.ConfigSource {
		return &corev3.ConfigSource{
			ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
			ResourceApiVersion:    corev3.ApiVersion_V3,
			// An Envoy without configuration is not ready, however long that takes.
			InitialFetchTimeout: durationpb.New(0),
		}
	}
	return &bootstrapv3.Bootstrap_DynamicResources{
		AdsConfig: &corev3.ApiConfigSource{
			ApiType:                   corev3.ApiConfigSource_DELTA_GRPC,
			TransportApiVersion:       corev3.ApiVersion_V3,
			SetNodeOnFirstMessageOnly: true,
			GrpcServices: []*corev3.GrpcService{{TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{
				EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{
					ClusterName: clusterXDS,
					// One control plane that is away is asked again soon, and not by all proxies at one moment: Envoy adds jitter.
					RetryPolicy: &corev3.RetryPolicy{RetryBackOff: &corev3.BackoffStrategy{
						BaseInterval: durationpb.New(500 * time.Millisecond), MaxInterval: durationpb.New(10 * time.Second)}},
				}}}},
		},
		CdsConfig: ads(),
		LdsConfig: ads(),
	}
}

// overloadManager bounds the connections: Envoy warns when nothing does.
func overloadManager(s *Settings) (*overloadv3.OverloadManager, error) {
	limit, err := pack(&connectionsv3.DownstreamConnectionsConfig{MaxActiveDownstreamConnections: int64(s.Envoy.MaxConnections)})
	if err != nil {
		return nil, err
	}
	return &overloadv3.OverloadManager{ResourceMonitors: []*overloadv3.ResourceMonitor{{
		Name:       "envoy.resource_monitors.global_downstream_max_connections",
		ConfigType: &overloadv3.ResourceMonitor_TypedConfig{TypedConfig: limit},
	}}}, nil
}

// runtimeLayer lets regular expressions of routes be as large as Istio allows them to be; Envoy's own limit is 100.
func runtimeLayer() *bootstrapv3.LayeredRuntime {
	return &bootstrapv3.LayeredRuntime{Layers: []*bootstrapv3.RuntimeLayer{{
		Name: "agent",
		LayerSpecifier: &bootstrapv3.RuntimeLayer_StaticLayer{StaticLayer: &structpb.Struct{Fields: map[string]*structpb.Value{
			"re2.max_program_size.error_level": structpb.NewNumberValue(32768),
		}}},
	}, {
		// Lets an operator change runtime values through the admin interface, as without layers.
		Name:           "admin",
		LayerSpecifier: &bootstrapv3.RuntimeLayer_AdminLayer_{AdminLayer: &bootstrapv3.RuntimeLayer_AdminLayer{}},
	}}}
}

// adminSocket is the path of the admin interface's unix socket.
func (s *Settings) adminSocket() string { return filepath.Join(s.envoyFolder(), "admin.sock") }

// adminAddress is where Envoy's admin interface answers.
func (s *Settings) adminAddress() *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_Pipe{Pipe: &corev3.Pipe{Path: s.adminSocket(), Mode: uint32(s.socketMode())}}}
}

func tcpAddress(host string, port uint32) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address: host, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port}}}}
}

// pack puts a message into an Any.
func pack(m proto.Message) (*anypb.Any, error) {
	a, err := anypb.New(m)
	if err != nil {
		return nil, fmt.Errorf("pack %s: %w", m.ProtoReflect().Descriptor().FullName(), err)
	}
	return a, nil
}
