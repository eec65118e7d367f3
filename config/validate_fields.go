package config

import (
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// unsupportedField is what a field asks for that Ashore does not do, and what to do instead. Both
// are empty for other fields. docs/istio-differences.md lists them.
func unsupportedField(fd protoreflect.FieldDescriptor) (what, todo string) {
	const (
		byReference = "choosing workloads by reference"
		targets     = "there are no waypoints, and no Gateways of Kubernetes: choose workloads and gateways by spec.selector.matchLabels"
		files       = "put the certificate into files and name them by serverCertificate and privateKey"
	)
	switch name, _ := strings.CutPrefix(string(fd.FullName()), "istio."); name {
	case "security.v1beta1.AuthorizationPolicy.targetRef", "security.v1beta1.AuthorizationPolicy.targetRefs",
		"security.v1beta1.RequestAuthentication.targetRef", "security.v1beta1.RequestAuthentication.targetRefs":
		return byReference, targets
	case "networking.v1alpha3.ClientTLSSettings.credential_name":
		return "a certificate by the name of a secret",
			"put it into files and name them by clientCertificate, privateKey and caCertificates"
	case "networking.v1alpha3.DestinationRule.workload_selector":
		return "a rule for some clients only", "remove workloadSelector, the rule then holds for all of its namespace"
	case "networking.v1alpha3.HTTPFaultInjection.Abort.http2_error":
		return "an abort by an HTTP/2 error", "use httpStatus or grpcStatus"
	case "networking.v1alpha3.HTTPFaultInjection.Delay.exponential_delay":
		return "a delay that grows", "use fixedDelay"
	case "networking.v1alpha3.HTTPRoute.delegate":
		return "delegation to another VirtualService", "write its routes here"
	case "networking.v1alpha3.L4MatchAttributes.source_subnet":
		return "a match by the client's address", "match sourceLabels or sourceNamespace instead"
	case "networking.v1alpha3.LoadBalancerSettings.zone_aware_lb_setting":
		return "balancing within a zone", "use localityLbSetting"
	case "networking.v1alpha3.Server.default_endpoint":
		return "a default endpoint of a gateway", "remove it"
	case "networking.v1alpha3.ServerTLSSettings.ca_cert_credential_name":
		return "authorities by the name of a secret", "put them into a file and name it by caCertificates"
	case "networking.v1alpha3.ServerTLSSettings.credential_name",
		"networking.v1alpha3.ServerTLSSettings.credential_names":
		return "a certificate by the name of a secret", files
	case "networking.v1alpha3.ServerTLSSettings.insecure_skip_verify":
		return "a server that accepts any certificate", "anybody could pretend to be any client; remove it"
	case "networking.v1alpha3.SidecarPort.target_port":
		return "the deprecated field targetPort", "name the application's port in defaultEndpoint"
	case "networking.v1alpha3.TrafficPolicy.proxy_protocol":
		return "the PROXY protocol", "remove it"
	case "networking.v1alpha3.TrafficPolicy.tunnel":
		return "a tunnel through a proxy", "remove it"
	}
	return "", ""
}

// everyField makes the checks that hold for all fields of m: none is set that is not supported, and
// no number is negative.
func (c *checker) everyField(path string, m protoreflect.Message) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		if !m.Has(fd) || fd.IsMap() {
			continue
		}
		path, v := below(path, fd.JSONName()), m.Get(fd)
		what, todo := unsupportedField(fd)
		if isWrapper(fd.Message()) {
			fd = fd.Message().Fields().ByName("value")
			v = v.Message().Get(fd)
		}
		switch kind := fd.Kind(); {
		case kind == protoreflect.BoolKind && !fd.IsList() && !v.Bool():
		case what != "":
			c.unsupported(path, what, todo)
		case isDuration(fd.Message()): // checked by itself
		case fd.Message() != nil && fd.IsList():
			for i := range v.List().Len() {
				c.everyField(at(path, i), v.List().Get(i).Message())
			}
		case fd.Message() != nil:
			c.everyField(path, v.Message())
		case fd.IsList(): // of texts and numbers
		case kind == protoreflect.Int32Kind && v.Int() < 0, isFloat(fd) && !(v.Float() >= 0):
			c.errorf(path, "the number must not be negative, it is %v", v)
		}
	}
}
