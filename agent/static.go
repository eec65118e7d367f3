package agent

import (
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// Names of static listeners, also in their statistics.
const (
	listenerHealth  = "agent"
	listenerMetrics = "metrics"
)

// staticClusters are the control plane, Envoy's own admin interface and the agent.
func staticClusters(s *Settings) ([]*clusterv3.Cluster, error) {
	sources, err := configurationClusters(s)
	if err != nil {
		return nil, err
	}
	return append(sources,
		localCluster(clusterMetrics, s.adminAddress()),
		localCluster(clusterAgent, tcpAddress(s.Workload.Addresses[0], uint32(s.Ports.Status)))), nil
}

// configurationClusters are where Envoy's configuration comes from: the control plane itself, or the agent.
func configurationClusters(s *Settings) ([]*clusterv3.Cluster, error) {
	options, err := grpcOptions(nil)
	if err != nil {
		return nil, err
	}
	var out []*clusterv3.Cluster
	for _, name := range []string{clusterXDS, clusterSDS} {
		c := localCluster(name, &corev3.Address{Address: &corev3.Address_Pipe{Pipe: &corev3.Pipe{Path: s.xdsSocket()}}})
		c.TypedExtensionProtocolOptions = options
		c.CircuitBreakers = noBreaker()
		out = append(out, c)
	}
	return out, nil
}

// grpcOptions make a cluster speak HTTP/2.
func grpcOptions(keepalive *corev3.KeepaliveSettings) (map[string]*anypb.Any, error) {
	options, err := pack(&httpv3.HttpProtocolOptions{
		UpstreamProtocolOptions: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_{
			ExplicitHttpConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig{
				ProtocolConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_Http2ProtocolOptions{
					Http2ProtocolOptions: &corev3.Http2ProtocolOptions{ConnectionKeepalive: keepalive}}}},
	})
	return map[string]*anypb.Any{"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": options}, err
}

// noBreaker lets everything through: a circuit breaker may never stand between a proxy and its configuration.
func noBreaker() *clusterv3.CircuitBreakers {
	return &clusterv3.CircuitBreakers{Thresholds: []*clusterv3.CircuitBreakers_Thresholds{{
		MaxConnections: wrapperspb.UInt32(100_000), MaxPendingRequests: wrapperspb.UInt32(100_000), MaxRequests: wrapperspb.UInt32(100_000)}}}
}

// localCluster is one with one host on this machine.
func localCluster(name string, a *corev3.Address) *clusterv3.Cluster {
	return &clusterv3.Cluster{
		Name:                 name,
		ConnectTimeout:       durationpb.New(time.Second),
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC},
		LoadAssignment:       assignment(name, []*corev3.Address{a}),
	}
}

func assignment(name string, addresses []*corev3.Address) *endpointv3.ClusterLoadAssignment {
	group := &endpointv3.LocalityLbEndpoints{}
	for _, a := range addresses {
		group.LbEndpoints = append(group.LbEndpoints, &endpointv3.LbEndpoint{
			HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: a}}})
	}
	return &endpointv3.ClusterLoadAssignment{ClusterName: name, Endpoints: []*endpointv3.LocalityLbEndpoints{group}}
}

// staticListeners are the ports that answer before the control plane has: health and metrics.
func staticListeners(s *Settings) ([]*listenerv3.Listener, error) {
	var out []*listenerv3.Listener
	for _, l := range []struct {
		name, path, cluster string
		port                int
	}{
		{listenerHealth, "/healthz/ready", clusterAgent, s.Ports.Health},
		{listenerMetrics, "/stats/prometheus", clusterMetrics, s.Ports.Metrics},
	} {
		if l.port == 0 {
			continue
		}
		listener, err := onePathListener(l.name, tcpAddress(s.Workload.Addresses[0], uint32(l.port)), l.path, l.cluster)
		if err != nil {
			return nil, err
		}
		out = append(out, listener)
	}
	return out, nil
}

// onePathListener passes GET of one path to one cluster, and nothing else: neither another path nor another
// method reaches the admin interface that stands behind it.
func onePathListener(name string, at *corev3.Address, path, cluster string) (*listenerv3.Listener, error) {
	router, err := pack(&routerv3.Router{})
	if err != nil {
		return nil, err
	}
	manager, err := pack(&hcmv3.HttpConnectionManager{
		CodecType:  hcmv3.HttpConnectionManager_AUTO,
		StatPrefix: name,
		// Anybody can connect, and no limit on connections holds here.
		CommonHttpProtocolOptions: &corev3.HttpProtocolOptions{IdleTimeout: durationpb.New(10 * time.Second)},
		RequestHeadersTimeout:     durationpb.New(5 * time.Second),
		HttpFilters:               []*hcmv3.HttpFilter{{Name: "envoy.filters.http.router", ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: router}}},
		RouteSpecifier: &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: &routev3.RouteConfiguration{
			Name: name,
			VirtualHosts: []*routev3.VirtualHost{{Name: name, Domains: []string{"*"}, Routes: []*routev3.Route{{
				Match: &routev3.RouteMatch{
					PathSpecifier: &routev3.RouteMatch_Path{Path: path},
					Headers: []*routev3.HeaderMatcher{{Name: ":method",
						HeaderMatchSpecifier: &routev3.HeaderMatcher_StringMatch{StringMatch: exact("GET")}}},
				},
				Action: &routev3.Route_Route{Route: &routev3.RouteAction{
					ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: cluster}, Timeout: durationpb.New(10 * time.Second)}},
			}}}},
		}},
	})
	if err != nil {
		return nil, err
	}
	return &listenerv3.Listener{
		Name:       name,
		StatPrefix: name,
		Address:    at,
		// With reuse_port two Envoys on one address would silently share its connections.
		EnableReusePort: wrapperspb.Bool(false),
		// Health and metrics must answer above all when the connections run out.
		IgnoreGlobalConnLimit: true,
		FilterChains: []*listenerv3.FilterChain{{Filters: []*listenerv3.Filter{{
			Name: "envoy.filters.network.http_connection_manager", ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: manager}}}}},
	}, nil
}
