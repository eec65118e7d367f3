package gen

import (
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/registry"
)

// istioMetadata is the key under which Istio's metadata stands.
const istioMetadata = "istio"

// metadata tells telemetry and people which service a cluster is for and which rule decides.
// Source: Istio, filter_metadata "istio": services, default_original_port, subset, config, external.
func (s clusterSpec) metadata() *corev3.Metadata {
	fields := serviceFields(s.port, s.service)
	if n := s.subset.GetName(); n != "" {
		fields["subset"] = structpb.NewStringValue(n)
	}
	if s.rule != nil {
		fields["config"] = structpb.NewStringValue(configPath(s.rule.Key, "destination-rule"))
	}
	if s.service.External {
		fields["external"] = structpb.NewBoolValue(true)
	}
	return istioFields(fields)
}

// istioFields are metadata under Istio's key.
func istioFields(fields map[string]*structpb.Value) *corev3.Metadata {
	return &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{istioMetadata: {Fields: fields}}}
}

// serviceFields name services and the port by which clients know the first of them.
func serviceFields(port uint32, services ...*registry.Service) map[string]*structpb.Value {
	list := make([]*structpb.Value, len(services))
	for i, s := range services {
		list[i] = structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{
			"host":      structpb.NewStringValue(s.Host),
			"name":      structpb.NewStringValue(serviceName(s)),
			"namespace": structpb.NewStringValue(s.Namespace),
		}})
	}
	return map[string]*structpb.Value{
		"default_original_port": structpb.NewNumberValue(float64(port)),
		"services":              structpb.NewListValue(&structpb.ListValue{Values: list}),
	}
}

// serviceName is the short name of a service of the mesh's own domain, else the host.
func serviceName(s *registry.Service) string {
	if name, rest, ok := strings.Cut(s.Host, "."); ok && strings.HasPrefix(rest, s.Namespace+".svc.") {
		return name
	}
	return s.Host
}

// configPath names an object as Istio does in metadata.
func configPath(k config.Key, kind string) string {
	return "/apis/networking.istio.io/v1/namespaces/" + k.Namespace + "/" + kind + "/" + k.Name
}
