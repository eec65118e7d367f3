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

// Fields of Ashore's own in the ReadinessProbe that an agent gets, both repeated texts.
const (
	// ProbePortsField has the workload's ports, "8080", with where the application listens when
	// that is not the same port of the workload: "8080=127.0.0.1:9090",
	// "8080=unix:///run/app.sock".
	ProbePortsField protowire.Number = 1000
	// ProbeUnitField has the systemd unit that has to be active.
	ProbeUnitField protowire.Number = 1001
)
