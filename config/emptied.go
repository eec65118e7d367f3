package config

import (
	"strings"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// An empty field (null, as before items that are commented out, "", [] or {}) means the same as a
// field that is left out. It is refused where any content would protect more. To mean it, leave the
// field out.

const emptiedText = "the field is empty, which means the same as leaving it out, and may protect less: " +
	"write a value, or remove the field"

// isEmpty says that nothing is written: null, no text, no item or no field.
func isEmpty(n *yaml.Node) bool {
	return isNull(n) || n.Value == "" && len(n.Content) == 0
}

// guards reports whether a field must not be empty, because any content may protect more.
func guards(fd protoreflect.FieldDescriptor) bool {
	name, isNetworking := strings.CutPrefix(string(fd.FullName()), "istio.networking.v1alpha3.")
	if !isNetworking {
		// A policy without rules allows nobody.
		return name != "istio.security.v1beta1.AuthorizationPolicy.rules" &&
			(strings.HasPrefix(name, "istio.security.") || strings.HasPrefix(name, "istio.type."))
	}
	switch name {
	case "Server.tls", "DestinationRule.traffic_policy", "Subset.traffic_policy", "TrafficPolicy.tls",
		"TrafficPolicy.port_level_settings", "TrafficPolicy.PortTrafficPolicy.tls", "IstioIngressListener.tls",
		"ServiceEntry.subject_alt_names":
		return true
	}
	message := fd.ContainingMessage().Name()
	return message == "ServerTLSSettings" || message == "TLSCertificate" || message == "ClientTLSSettings"
}

// spellOut writes the first value of an enum into each object without fields. protojson leaves that
// value out, and Parse would refuse the object as empty.
func spellOut(m protoreflect.MessageDescriptor, n *yaml.Node) {
	if n.Kind != yaml.MappingNode {
		return
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		fd, values := m.Fields().ByJSONName(n.Content[i].Value), []*yaml.Node{n.Content[i+1]}
		if fd == nil {
			continue // of a message that JSON writes in its own way
		}
		if fd.IsList() || fd.IsMap() {
			values = values[0].Content // of a map also keys, which are no objects
		}
		if fd.IsMap() {
			fd = fd.MapValue()
		}
		for _, v := range values {
			if fd.Message() != nil {
				spellOut(fd.Message(), v)
			}
		}
	}
	if len(n.Content) > 0 {
		return
	}
	for i := range m.Fields().Len() {
		if fd := m.Fields().Get(i); fd.Enum() != nil && !fd.IsList() && fd.ContainingOneof() == nil {
			n.Style = 0
			n.Content = append(n.Content, text(fd.JSONName()), text(string(fd.Enum().Values().ByNumber(0).Name())))
		}
	}
}
