package envoy

import (
	"strconv"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/ashore-mesh/ashore/config"
)

// OutboundCluster is "outbound|80|v1|web.shop.svc.cluster.local". Source: Istio,
// model.BuildSubsetKey.
func OutboundCluster(port uint32, subset, host string) string {
	b := make([]byte, 0, len("outbound||||")+5+len(subset)+len(host))
	b = append(b, "outbound|"...)
	b = strconv.AppendUint(b, uint64(port), 10)
	b = append(b, '|')
	b = append(b, subset...)
	b = append(b, '|')
	b = append(b, host...)
	return string(b)
}

// ForwardedCluster is "outbound_.80_.v1_.web.shop.svc.cluster.local": what clients ask for by SNI in the
// mesh's mutual TLS, and the cluster to which a gateway forwards such a connection. Source: Istio,
// model.BuildDNSSrvSubsetKey.
func ForwardedCluster(port uint32, subset, host string) string {
	return "outbound_." + strconv.FormatUint(uint64(port), 10) + "_." + subset + "_." + host
}

// InboundCluster is "inbound|8080||". Source: Istio, model.BuildInboundSubsetKey.
func InboundCluster(port uint32) string {
	return "inbound|" + strconv.FormatUint(uint64(port), 10) + "||"
}

// Names of the clusters that every sidecar has. Source: Istio, pilot/pkg/networking/util.
const (
	BlackHole          = "BlackHoleCluster"
	Passthrough        = "PassthroughCluster"
	InboundPassthrough = "InboundPassthroughCluster"
)

// Names of what sends requests for unknown hosts to the hosts that they name: the cluster, and the
// route configuration of ports that nobody declared. Source: Istio, pilot/pkg/networking/util.
const (
	UnknownHosts      = "AllowAnyDynamicDNSCluster"
	UnknownHostsRoute = "allow_any_dynamic_dns"
)

// IstioMetadata is the key under which Istio's metadata stands.
const IstioMetadata = "istio"

// ConfigMember is the member of Istio's metadata that names the object something was made of.
const ConfigMember = "config"

// ConfigPath names an object of a kind ("destination-rule") to people. Source: Istio's filter
// metadata.
func ConfigPath(o *config.Object, kind string) string {
	return "/apis/networking.istio.io/v1/namespaces/" + o.Namespace + "/" + kind + "/" + o.Name
}

// Metadata is Istio's metadata with these members.
func Metadata(fields map[string]*structpb.Value) *corev3.Metadata {
	return &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{IstioMetadata: {Fields: fields}}}
}

// ServiceMember is the member of Istio's metadata that names a service to metrics, as ServiceName
// returns it. Envoy writes texts cheaply, and lists as JSON.
const ServiceMember = "service"

// ServiceName is "host;name;namespace".
func ServiceName(host, name, namespace string) string { return host + ";" + name + ";" + namespace }

// NamedForMetrics is metadata by which metrics name what is for no service. Source: Istio, whose
// metrics name PassthroughCluster and BlackHoleCluster as destination_service_name.
func NamedForMetrics(name string) *corev3.Metadata {
	return Metadata(map[string]*structpb.Value{ServiceMember: structpb.NewStringValue(ServiceName("", name, ""))})
}
