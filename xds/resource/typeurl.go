package resource

// The types of Envoy's resources. Source: Istio, pkg/model/xds.go; envoyproxy.io, "xDS REST and gRPC protocol: resource types".
const (
	ClusterType         = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	EndpointType        = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
	ListenerType        = "type.googleapis.com/envoy.config.listener.v3.Listener"
	RouteType           = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"
	SecretType          = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"
	ExtensionConfigType = "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig"
	NameTableType       = "type.googleapis.com/istio.networking.nds.v1.NameTable"
)
