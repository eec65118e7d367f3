package cluster

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/peername"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/xds/gen/envoy"
)

// clusterMetadata tells telemetry and people which services a cluster is for and which rule
// decides. Source: Istio, filter_metadata "istio": config, default_original_port, external,
// services, subset; and envoy.ServiceMember.
type clusterMetadata struct {
	// rule is the object that decides; nil: none.
	rule *config.Object
	// port is the one by which clients know the first of services.
	port     uint32
	external bool
	services []*registry.Service
	subset   string
}

// append appends the metadata as a field of an encoded cluster. Members are in the order of their
// names.
func (m clusterMetadata) append(b []byte) []byte {
	return envoy.AppendMessage(b, fieldMetadata, func(b []byte) []byte {
		return envoy.AppendFilterMetadata(b, envoy.IstioMetadata, m.appendMembers)
	})
}

// fieldMetadata is the field of cluster.v3.Cluster.
const fieldMetadata protowire.Number = 25

func (m clusterMetadata) appendMembers(b []byte) []byte {
	if m.rule != nil {
		b = envoy.AppendStringMember(b, envoy.ConfigMember, envoy.ConfigPath(m.rule, "destination-rule"))
	}
	b = envoy.AppendNumberMember(b, "default_original_port", float64(m.port))
	if m.external {
		b = envoy.AppendTrueMember(b, "external")
	}
	if len(m.services) > 0 {
		s := m.services[0]
		b = envoy.AppendStringMember(b, envoy.ServiceMember, envoy.ServiceName(s.Host, serviceName(s), s.Namespace))
	}
	b = envoy.AppendListMember(b, "services", len(m.services), func(b []byte, i int) []byte {
		s := m.services[i]
		b = envoy.AppendStringMember(b, "host", s.Host)
		b = envoy.AppendStringMember(b, "name", serviceName(s))
		if s.Namespace != "" {
			b = envoy.AppendStringMember(b, "namespace", s.Namespace)
		}
		return b
	})
	if m.subset != "" {
		b = envoy.AppendStringMember(b, "subset", m.subset)
	}
	return b
}

// serviceName is the short name of a service of the mesh's own domain, else the host.
func serviceName(s *registry.Service) string {
	if name, namespace := peername.ServiceOf(s.Host); namespace == s.Namespace {
		return name
	}
	return s.Host
}
