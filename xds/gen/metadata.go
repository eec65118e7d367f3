package gen

import (
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/registry"
)

// appendIstioMetadata appends a field of type core.v3.Metadata with members under Istio's key.
func appendIstioMetadata(b []byte, field protowire.Number, members func([]byte) []byte) []byte {
	return appendMessage(b, field, func(b []byte) []byte { return appendFilterMetadata(b, istioMetadata, members) })
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
			b = appendTextMember(b, configMember, configPath(m.rule, "destination-rule"))
		}
		b = appendNumberMember(b, "default_original_port", float64(m.port))
		if m.external {
			b = appendMember(b, "external", func(b []byte) []byte { return appendUint(b, fieldBoolValue, 1) })
		}
		b = appendMember(b, "services", func(b []byte) []byte {
			return appendMessage(b, fieldListValue,
				m.appendServices)
		})
		return appendTextMember(b, "subset", m.subset)
	})
}

func (m clusterMetadata) appendServices(b []byte) []byte {
	for _, s := range m.services {
		b = appendMessage(b, fieldListItems, func(b []byte) []byte {
			return appendMessage(b, fieldStructValue, func(b []byte) []byte {
				b = appendTextMember(b, "host", s.Host)
				b = appendTextMember(b, "name", serviceName(s))
				return appendTextMember(b, "namespace", s.Namespace)
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
