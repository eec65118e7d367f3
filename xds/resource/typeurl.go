package resource

import "google.golang.org/protobuf/encoding/protowire"

// The types of Envoy's resources. Source: Istio, pkg/model/xds.go; envoyproxy.io, "xDS REST and
// gRPC protocol: resource types".
const (
	ClusterType         = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	EndpointType        = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
	ListenerType        = "type.googleapis.com/envoy.config.listener.v3.Listener"
	RouteType           = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"
	SecretType          = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"
	ExtensionConfigType = "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig"
	NameTableType       = "type.googleapis.com/istio.networking.nds.v1.NameTable"
)

// ProbePortsField is a field of Ashore's own in the ReadinessProbe that an agent gets, a repeated
// text. It has the workload's ports, "8080", with where the application listens when that is not the
// same port of the workload: "8080=127.0.0.1:9090", "8080=unix:///run/app.sock".
const ProbePortsField protowire.Number = 1000

// Members of proxyMetadata in the ProxyConfig that an agent gets.
const (
	// BypassedPorts are the ports of the workload at which connections reach the application past
	// Envoy: "8080, 9090".
	BypassedPorts = "ASHORE_BYPASSED_PORTS"
	// ApplicationMetrics is where the application serves its metrics: port and path,
	// "9100/metrics". Empty: the agent does not read them.
	ApplicationMetrics = "ASHORE_APPLICATION_METRICS"
)
