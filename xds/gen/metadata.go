package gen

import (
	"cmp"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/registry"
)

// istioMetadata is the key under which Istio's metadata stands.
const istioMetadata = "istio"

// configMember is the member of Istio's metadata that names the object something was made of.
const configMember = "config"

// configPath names an object of a kind ("destination-rule") to people. Source: Istio's filter
// metadata.
func configPath(o *config.Object, kind string) string {
	return "/apis/networking.istio.io/v1/namespaces/" + o.Namespace + "/" + kind + "/" + o.Name
}

// fieldFilterMetadata is core.v3.Metadata.filter_metadata.
const fieldFilterMetadata protowire.Number = 1

// appendIstioMetadata appends a field of type core.v3.Metadata with members under Istio's key.
func appendIstioMetadata(b []byte, field protowire.Number, members func([]byte) []byte) []byte {
	return appendMessage(b, field, func(b []byte) []byte { return appendFilterMetadata(b, istioMetadata, members) })
}

// appendFilterMetadata appends the members under one key.
func appendFilterMetadata(b []byte, key string, members func([]byte) []byte) []byte {
	return appendMessage(b, fieldFilterMetadata, func(b []byte) []byte {
		b = appendText(b, fieldMapKey, key)
		return appendMessage(b, fieldMapValue, members)
	})
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

// workloadName tells telemetry which workload an endpoint is: "name;namespace;canonical
// name;canonical revision;cluster"; empty when it is not known.
// Source: Istio, pilot/pkg/networking/util, which leaves the default revision out.
func workloadName(ep *registry.Endpoint) string {
	if ep.Workload == "" {
		return ""
	}
	name := cmp.Or(ep.Labels["service.istio.io/canonical-name"], ep.Labels["app.kubernetes.io/name"], ep.Labels["app"],
		ep.Workload)
	revision := cmp.Or(ep.Labels["service.istio.io/canonical-revision"], ep.Labels["app.kubernetes.io/version"],
		ep.Labels["version"])
	if revision == "latest" {
		revision = ""
	}
	return ep.Workload + ";" + ep.Namespace + ";" + name + ";" + revision + ";"
}
