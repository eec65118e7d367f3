package config

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/ashore-mesh/ashore/internal/feed"
)

// A field with nothing in it (null, as before items that are commented out; [] or {}) reads as if
// it were left out. Where that stands for more than any content would, for every caller or for the
// mode of another policy, it is a protection that vanished without a word. So there it is refused:
// who means it leaves the field out.

// checkEmpty notes as an error that a field protects and has nothing in it.
func (d *decoder) checkEmpty(fd protoreflect.FieldDescriptor, key, value *yaml.Node) {
	if d.guarded && guards(fd) && (isEmpty(value) || emptyTextWidens(fd) && value.Value == "") {
		d.noteEmpty(key, fd, fd.ContainingMessage())
	}
}

// checkEmptyEntry is checkEmpty for an entry of a map.
func (d *decoder) checkEmptyEntry(fd protoreflect.FieldDescriptor, key, value *yaml.Node) {
	if entry := fd.MapValue().Message(); d.guarded && entry != nil && protects(entry) && isEmpty(value) {
		d.noteEmpty(key, fd, entry)
	}
}

func (d *decoder) noteEmpty(key *yaml.Node, fd protoreflect.FieldDescriptor, m protoreflect.MessageDescriptor) {
	if len(d.empty) > MaxProblems {
		return // no more would be shown
	}
	d.empty = append(d.empty, Problem{Severity: feed.Error, Object: d.about, Field: d.field(), Line: d.lines.line(key),
		Text: "there is nothing in it, as if it were left out, and then " + leftOut(m,
			fd) + ", or remove the field if that is meant"})
}

// reportChecked reports what the checks of the object found, and the fields with nothing in them of
// which they found no error; these take the place of warnings.
func (d *decoder) reportChecked(checked []Problem) {
	for _, p := range checked {
		if p.Severity != feed.Error && slices.ContainsFunc(d.empty,
			func(e Problem) bool { return e.Field == p.Field || strings.HasPrefix(e.Field, p.Field+".") }) {
			continue
		}
		if len(d.problems) < MaxProblems || d.beyond.lacks(p) {
			p.Line = d.lines.of(p.Field)
		}
		d.report(p)
	}
	for _, e := range d.empty {
		if !slices.ContainsFunc(checked, func(p Problem) bool {
			return p.Severity == feed.Error &&
				p.Field == e.Field
		}) {
			d.report(e)
		}
	}
}

// isEmpty says that nothing is written: null, no item or no field.
func isEmpty(n *yaml.Node) bool {
	n = deref(n)
	return isNull(n) || n.Kind != yaml.ScalarNode && len(n.Content) == 0
}

// guards says that leaving a field out may stand for more than any content of it.
func guards(fd protoreflect.FieldDescriptor) bool {
	const networking = "istio.networking.v1alpha3."
	switch fd.FullName() {
	case "istio.security.v1beta1.AuthorizationPolicy.rules": // no rule allows nobody; that no rule denies nobody is refused elsewhere
		return false
	case networking + "Server.tls",
		networking + "TrafficPolicy.tls", networking + "TrafficPolicy.PortTrafficPolicy.tls", networking + "TrafficPolicy.port_level_settings",
		networking + "DestinationRule.traffic_policy", networking + "Subset.traffic_policy",
		networking + "DestinationRule.workload_selector", networking + "DestinationRule.export_to",
		networking + "ServiceEntry.export_to", networking + "ServiceEntry.workload_selector", networking + "ServiceEntry.subject_alt_names",
		networking + "VirtualService.export_to", networking + "HTTPRoute.match", networking + "TCPRoute.match", networking + "TLSRoute.match":
		return true
	}
	return protects(fd.ContainingMessage())
}

// protects says that every field of a message does.
func protects(m protoreflect.MessageDescriptor) bool {
	name := string(m.FullName())
	if strings.HasPrefix(name, "istio.security.") || strings.HasPrefix(name, "istio.type.") {
		return true
	}
	switch strings.TrimPrefix(name, "istio.networking.v1alpha3.") {
	case "ServerTLSSettings", "ServerTLSSettings.TLSCertificate", "ClientTLSSettings", "WorkloadSelector",
		"Sidecar", "OutboundTrafficPolicy", "IstioIngressListener", "IstioEgressListener",
		"HTTPMatchRequest", "L4MatchAttributes", "TLSMatchAttributes":
		return true
	}
	return false
}

// emptyTextWidens says of a text that "" stands for more than any other.
func emptyTextWidens(fd protoreflect.FieldDescriptor) bool {
	switch fd.Name() {
	case "jwks", "jwks_uri", "ca_certificates", "ca_crl":
		return fd.Kind() == protoreflect.StringKind
	}
	return false
}

// leftOut says what holds without a field of m, and what to write.
func leftOut(m protoreflect.MessageDescriptor, fd protoreflect.FieldDescriptor) string {
	switch fd.Name() {
	case "selector", "workload_selector", "match_labels", "labels":
		return "every workload of the namespace is selected: write labels"
	case "export_to":
		return "every namespace sees it: write namespaces"
	case "action":
		return "it is ALLOW: write the action"
	case "from":
		return "the rule is about every caller: write a source"
	case "to":
		return "the rule is about everything that is called: write an operation"
	case "when":
		return "the rule has no condition: write one"
	case "jwt_rules":
		return "no token is looked at: write a rule"
	case "audiences":
		return "a token for anybody is good: write the audiences"
	case "egress":
		return "everything that the namespace sees can be reached: write hosts"
	case "outbound_traffic_policy":
		return "the settings of the mesh decide: write a mode"
	}
	switch m.Name() {
	case "Source", "Operation", "Condition":
		return "anything matches: write values"
	case "PeerAuthentication", "MutualTLS":
		return "the policy above decides, or PERMISSIVE where there is none: write a mode (STRICT, PERMISSIVE or DISABLE; UNSET leaves it to the policy above)"
	case "ServerTLSSettings", "ClientTLSSettings", "Server", "IstioIngressListener", "TrafficPolicy", "PortTrafficPolicy":
		return "less is asked of the other side, or nothing: write it"
	case "HTTPRoute", "TCPRoute", "TLSRoute", "HTTPMatchRequest", "L4MatchAttributes", "TLSMatchAttributes":
		return "more matches: write what is to match"
	}
	return "the default holds: write it"
}

// spellOut writes the first value of each enum into objects of a specification that would be
// refused as empty: it is what they say, and a value that protobuf's writer leaves out.
func spellOut(m protoreflect.MessageDescriptor, n *yaml.Node) {
	if n.Kind != yaml.MappingNode {
		return
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		fd, value := m.Fields().ByJSONName(n.Content[i].Value), n.Content[i+1]
		switch {
		case fd == nil || fd.Message() == nil:
		case fd.IsMap():
			for j := 1; j < len(value.Content) && fd.MapValue().Message() != nil; j += 2 {
				spellOutField(fd.MapValue().Message(), value.Content[j], protects(fd.MapValue().Message()))
			}
		case fd.IsList():
			for _, item := range value.Content {
				spellOut(fd.Message(), item)
			}
		default:
			spellOutField(fd.Message(), value, guards(fd))
		}
	}
}

func spellOutField(m protoreflect.MessageDescriptor, n *yaml.Node, guarded bool) {
	spellOut(m, n)
	if !guarded || n.Kind != yaml.MappingNode || len(n.Content) > 0 {
		return
	}
	for i := range m.Fields().Len() {
		if fd := m.Fields().Get(i); fd.Enum() != nil && !fd.IsList() && fd.ContainingOneof() == nil {
			n.Style = 0
			n.Content = append(n.Content, text(fd.JSONName()), text(string(fd.Enum().Values().ByNumber(0).Name())))
		}
	}
}
