package cluster

import (
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/xds/gen/envoy"
)

// appendIstioMetadata appends a field of type core.v3.Metadata with members under Istio's key.
func appendIstioMetadata(b []byte, field protowire.Number, members func([]byte) []byte) []byte {
	return envoy.AppendMessage(b, field, func(b []byte) []byte { return envoy.AppendFilterMetadata(b, envoy.IstioMetadata, members) })
}

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

// append appends it as field cluster.v3.Cluster.metadata. Members are in the order of their names.
func (m clusterMetadata) append(b []byte) []byte {
	return appendIstioMetadata(b, fieldClusterMetadata, func(b []byte) []byte {
		if m.rule != nil {
			b = envoy.AppendTextMember(b, envoy.ConfigMember, envoy.ConfigPath(m.rule, "destination-rule"))
		}
		b = envoy.AppendNumberMember(b, "default_original_port", float64(m.port))
		if m.external {
			b = envoy.AppendMember(b, "external", func(b []byte) []byte { return envoy.AppendUint(b, envoy.FieldBoolValue, 1) })
		}
		b = envoy.AppendMember(b, "services", func(b []byte) []byte {
			return envoy.AppendMessage(b, envoy.FieldListValue,
				m.appendServices)
		})
		return envoy.AppendTextMember(b, "subset", m.subset)
	})
}

func (m clusterMetadata) appendServices(b []byte) []byte {
	for _, s := range m.services {
		b = envoy.AppendMessage(b, envoy.FieldListItems, func(b []byte) []byte {
			return envoy.AppendMessage(b, envoy.FieldStructValue, func(b []byte) []byte {
				b = envoy.AppendTextMember(b, "host", s.Host)
				b = envoy.AppendTextMember(b, "name", serviceName(s))
				return envoy.AppendTextMember(b, "namespace", s.Namespace)
			})
		})
	}
	return b
}

// serviceName is the short name of a service of the mesh's own domain, else the host.
func serviceName(s *registry.Service) string {
	if name, rest, ok := strings.Cut(s.Host, "."); ok && strings.HasPrefix(rest, s.Namespace+".svc.") {
		return name
	}
	return s.Host
}
