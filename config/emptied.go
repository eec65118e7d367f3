package config

import (
	"strings"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// An empty field (null, as before items that are commented out, "" or []) means the same as a field
// that is left out. It is refused where any content would protect more. To mean it, leave the field
// out, or write {}.

const emptiedText = "the field is empty, which means the same as leaving it out, and may protect less: " +
	"write a value, or remove the field"

// isEmpty says that nothing is written: null, no text or no item.
func isEmpty(n *yaml.Node) bool {
	return isNull(n) || n.Kind != yaml.MappingNode && n.Value == "" && len(n.Content) == 0
}

// guards reports whether a field must not be empty, because any content may protect more.
func guards(fd protoreflect.FieldDescriptor) bool {
	if fd.ContainingMessage().Name() == "PolicyTargetReference" { // refused as a whole
		return false
	}
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
