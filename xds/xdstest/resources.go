package xdstest

import (
	"fmt"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ashore-mesh/ashore/xds/resource"
)

// aggregated says that a resource is fetched by the stream that named it.
func aggregated() *corev3.ConfigSource {
	return &corev3.ConfigSource{ResourceApiVersion: corev3.ApiVersion_V3,
		ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}}}
}

func pack(m proto.Message) *anypb.Any {
	a, err := anypb.New(m)
	if err != nil {
		panic(err) // the messages below are all valid
	}
	return a
}

func of(typeURL, name string, refs []resource.Ref, m proto.Message) *resource.Resource {
	return resource.New(typeURL, name, refs, func() []byte { return resource.Encode(m) })
}

// Cluster is a cluster whose endpoints are discovered. timeout makes one version differ from
// another.
func Cluster(name string, timeout time.Duration) *resource.Resource {
	endpoints := resource.Ref{TypeURL: resource.EndpointType, Name: name}
	return of(resource.ClusterType, name, []resource.Ref{endpoints}, &clusterv3.Cluster{
		Name:                 name,
		ConnectTimeout:       durationpb.New(timeout),
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
		EdsClusterConfig:     &clusterv3.Cluster_EdsClusterConfig{EdsConfig: aggregated()},
	})
}

func address(port uint32) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address: "127.0.0.1", PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port},
	}}}
}

// Endpoints are those of a cluster: one local port each.
func Endpoints(cluster string, ports ...uint32) *resource.Resource {
	var eps []*endpointv3.LbEndpoint
	for _, p := range ports {
		eps = append(eps, &endpointv3.LbEndpoint{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{
			Endpoint: &endpointv3.Endpoint{Address: address(p)}}})
	}
	return of(resource.EndpointType, cluster, nil, &endpointv3.ClusterLoadAssignment{
		ClusterName: cluster, Endpoints: []*endpointv3.LocalityLbEndpoints{{LbEndpoints: eps}},
	})
}

// Listener is an HTTP listener on a local port, with a discovered route configuration.
func Listener(name string, port uint32, route string) *resource.Resource {
	routes := resource.Ref{TypeURL: resource.RouteType, Name: route}
	return of(resource.ListenerType, name, []resource.Ref{routes}, &listenerv3.Listener{
		Name:    name,
		Address: address(port),
		FilterChains: []*listenerv3.FilterChain{{Filters: []*listenerv3.Filter{{
			Name: "http",
			ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: pack(&hcmv3.HttpConnectionManager{
				StatPrefix: name,
				RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{ConfigSource: aggregated(),
					RouteConfigName: route}},
				HttpFilters: []*hcmv3.HttpFilter{{Name: "router",
					ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: pack(&routerv3.Router{})}}},
			})},
		}}}},
	})
}

// BadListener is a listener that Envoy rejects: it names a filter that does not exist.
func BadListener(name string, port uint32) *resource.Resource {
	return of(resource.ListenerType, name, nil, &listenerv3.Listener{
		Name:    name,
		Address: address(port),
		FilterChains: []*listenerv3.FilterChain{{Filters: []*listenerv3.Filter{{
			Name: "no.such.filter",
			ConfigType: &listenerv3.Filter_TypedConfig{
				TypedConfig: &anypb.Any{TypeUrl: "type.googleapis.com/no.such.Filter"}},
		}}}},
	})
}

// Route is a route configuration that sends everything to one cluster.
func Route(name, cluster string) *resource.Resource {
	return of(resource.RouteType, name, []resource.Ref{{TypeURL: resource.ClusterType, Name: cluster}},
		&routev3.RouteConfiguration{
			Name: name,
			VirtualHosts: []*routev3.VirtualHost{{Name: "all", Domains: []string{"*"}, Routes: []*routev3.Route{{
				Match: &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}},
				Action: &routev3.Route_Route{Route: &routev3.RouteAction{
					ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: cluster}}},
			}}}},
		})
}

// NodeID is the ID of a sidecar with that address.
func NodeID(name, ip string) string {
	return fmt.Sprintf("sidecar~%s~%s.shop~shop.svc.cluster.local", ip, name)
}
