package cluster

import (
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/xds/gen/envoy"
)

// clusterMetadata tells telemetry and people which services a cluster is for and which rule
// decides. Source: Istio, filter_metadata "istio": config, default_original_port, external,
// services, subset.
type clusterMetadata struct {
	// rule is the object that decides; nil: none.
	rule *config.Object
	// port is the one by which clients know the first of services.
	port     uint32
	external bool
	services []*registry.Service
	subset   string
}

// message is the metadata as Envoy's.
func (m clusterMetadata) message() *corev3.Metadata {
	services := &structpb.ListValue{}
	for _, s := range m.services {
		fields := map[string]*structpb.Value{
			"host": structpb.NewStringValue(s.Host), "name": structpb.NewStringValue(serviceName(s)),
		}
		if s.Namespace != "" {
			fields["namespace"] = structpb.NewStringValue(s.Namespace)
		}
		services.Values = append(services.Values, structpb.NewStructValue(&structpb.Struct{Fields: fields}))
	}
	fields := map[string]*structpb.Value{
		"default_original_port": structpb.NewNumberValue(float64(m.port)),
		"services":              structpb.NewListValue(services),
	}
	if m.rule != nil {
		fields[envoy.ConfigMember] = structpb.NewStringValue(envoy.ConfigPath(m.rule, "destination-rule"))
	}
	if m.external {
		fields["external"] = structpb.NewBoolValue(true)
	}
	if m.subset != "" {
		fields["subset"] = structpb.NewStringValue(m.subset)
	}
	return &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{envoy.IstioMetadata: {Fields: fields}}}
}

// serviceName is the short name of a service of the mesh's own domain, else the host.
func serviceName(s *registry.Service) string {
	if name, rest, ok := strings.Cut(s.Host, "."); ok && strings.HasPrefix(rest, s.Namespace+".svc.") {
		return name
	}
	return s.Host
}
