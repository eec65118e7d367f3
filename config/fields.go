package config

import (
	"cmp"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// fieldName is the name of a field with that of its message: "Destination.host".
func fieldName(fd protoreflect.FieldDescriptor) string {
	return string(fd.ContainingMessage().Name()) + "." + string(fd.Name())
}

// unsupportedField is what a field asks for that Ashore does not do, and what to do instead. Both
// are empty for other fields. docs/istio-fields.md lists them.
func unsupportedField(fd protoreflect.FieldDescriptor) (what, todo string) {
	const (
		byReference = "choosing workloads by reference"
		targets     = "there are no waypoints, and no Gateways of Kubernetes: choose workloads and gateways by spec.selector.matchLabels"
	)
	switch fieldName(fd) {
	case "AuthorizationPolicy.targetRef", "AuthorizationPolicy.targetRefs",
		"RequestAuthentication.targetRef", "RequestAuthentication.targetRefs",
		"Telemetry.targetRef", "Telemetry.targetRefs", "EnvoyFilter.targetRefs",
		"TrafficExtension.targetRefs":
		return byReference, targets
	case "Abort.http2_error":
		return "an abort by an HTTP/2 error", "use httpStatus or grpcStatus"
	case "Delay.exponential_delay":
		return "a delay that grows", "use fixedDelay"
	case "HttpHeader.env_name":
		return "a header from the environment of the control plane", "write the value"
	case "L4MatchAttributes.source_subnet":
		return "Istio accepts it and ignores it", "match sourceLabels or sourceNamespace instead"
	case "MetricSelector.custom_metric":
		return "a metric that Istio does not have", "write metric with one of Istio's, such as REQUEST_COUNT"
	case "OpenTelemetryTracingProvider.dynatrace_sampler", "ResourceDetectors.dynatrace":
		return "what only Dynatrace has", "remove it"
	case "OpenTelemetryTracingProvider.service_attribute_enrichment":
		return "another name of services in spans", "remove it; the name is APP.NAMESPACE"
	case "ConnectionSettings.listener_connection_limit", "ConnectionSettings.global_downstream_connection_limit":
		return "a limit of connections", "the agent limits those of an Envoy to 50,000; remove it"
	case "ServerTLSSettings.insecure_skip_verify":
		return "a server that accepts any certificate", "anybody could pretend to be any client; remove it"
	case "TrafficExtension.wasm":
		return "a module of Wasm", "write the extension in lua"
	}
	return "", ""
}

// withoutEffect says why a field means nothing. Empty for other fields.
func withoutEffect(fd protoreflect.FieldDescriptor) string {
	switch fieldName(fd) {
	case "ProxyConfig.image":
		return "Envoy is a program of the machine, not an image"
	case "Server.default_endpoint":
		return "a gateway sends requests where its routes say"
	case "ProxyHeaders.metadata_exchange_headers":
		return "proxies never send these headers"
	case "Metrics.reporting_interval":
		return "proxies count connections when they open and when they end"
	case "Patch.filter_class":
		return "the operation says where a filter is inserted, in Istio too"
	case "SidecarPort.target_port":
		return "the port of the application is that of defaultEndpoint"
	}
	return ""
}

// unsupportedValue is unsupportedField for one value of an enumeration.
func unsupportedValue(v protoreflect.EnumValueDescriptor) (what, todo string) {
	switch v.FullName() {
	case "istio.networking.v1alpha3.EnvoyFilter.BOOTSTRAP":
		return "a patch of the bootstrap", "ashore-agent writes it, from its own settings; remove the patch"
	case "istio.networking.v1alpha3.EnvoyFilter.WAYPOINT":
		return "a patch of waypoints", "there are no waypoints; remove the patch"
	case "istio.telemetry.v1alpha1.MetricSelector.GRPC_REQUEST_MESSAGES",
		"istio.telemetry.v1alpha1.MetricSelector.GRPC_RESPONSE_MESSAGES":
		return "a change of " + string(v.Name()), "remove it; Envoy counts messages by cluster"
	}
	return "", ""
}

// Difference returns how a field that is enforced differs from Istio. Empty for other fields.
func Difference(fd protoreflect.FieldDescriptor) string {
	switch fieldName(fd) {
	case "HTTPMatchRequest.without_headers":
		return "a header with an empty value counts as missing"
	case "DestinationRule.workload_selector":
		return "other workloads apply the other rules; in Istio this rule also hides those for wider hosts from them"
	case "ServiceEntry.resolution":
		return "DYNAMIC_DNS works at gateways too; all services of a proxy share one DNS cache"
	case "Server.hosts":
		return "with AUTO_PASSTHROUGH, namespace/host means services of that namespace"
	case "JWTRule.timeout":
		return "how long the control plane waits for the keys; proxies never wait"
	case "AuthorizationPolicy.action":
		return "CUSTOM with the annotation istio.io/dry-run is refused"
	case "Patch.operation":
		return "MERGE_AND_REPLACE_LIST also works on filters"
	case "Patch.value":
		return "fields and types that a stock Envoy 1.40 does not have are refused; MERGE also replaces numbers by zero"
	case "ProxyConfig.environment_variables":
		return "variables that begin with ISTIO_META_ have no effect, but for ISTIO_META_ENABLE_SELF_DISCOVERY: the agent's settings have the metadata of a node"
	case "AccessLogging.match":
		return "the filter applies only to requests of this mode; in Istio the last filter applies to both modes"
	case "AccessLogging.filter":
		return "it applies without providers too, and only to the mode of match"
	case "Filter.expression":
		return "functions and attributes that Envoy 1.40 does not have, such as node, are refused"
	case "ClientTLSSettings.subject_alt_names":
		return "without any, the names of the ServiceEntry, sni or the host of the request are verified"
	case "ClientTLSSettings.credential_name":
		return "a sidecar that workloadSelector does not select cannot connect; in Istio it connects in plaintext"
	case "ServerTLSSettings.credential_name", "ServerTLSSettings.credential_names",
		"ServerTLSSettings.ca_cert_credential_name":
		return "names a secret of ashored, without sds:// or configmap://; for Gateways only"
	}
	return ""
}

// required reports whether a field is checked although it is not set, because it must be.
func required(fd protoreflect.FieldDescriptor) bool {
	switch fieldName(fd) {
	case "Destination.host", "Delegate.name", "DestinationRule.host", "Subset.name", "PortSelector.number", "HTTPCookie.name",
		"Attribute.name", "RegexRewrite.match", "Distribute.from", "Failover.from", "Failover.to",
		"Port.name", "Port.protocol", "ServicePort.number", "ServicePort.name",
		"HTTPHealthCheckConfig.port", "TCPHealthCheckConfig.port", "GrpcHealthCheckConfig.port", "HTTPHeader.name",
		"JWTHeader.name", "ClaimToHeader.header", "ClaimToHeader.claim",
		"ProviderRef.name", "Literal.value", "Environment.name", "RequestHeader.name", "Formatter.value",
		"Filter.expression", "HttpHeader.name", "HttpService.path", "TunnelSettings.target_host",
		"TunnelSettings.target_port":
		return true
	}
	return isProvider(fd.ContainingMessage()) && (fd.Name() == "service" || fd.Name() == "port")
}

// isProvider reports whether a message is the configuration of an extension provider.
func isProvider(md protoreflect.MessageDescriptor) bool {
	return strings.HasSuffix(string(md.Name()), "Provider")
}

// needsFields reports whether a message means nothing when none of its fields is set.
func needsFields(md protoreflect.MessageDescriptor) bool {
	switch md.Name() {
	case "TrafficPolicy", "ConnectionPoolSettings", "HTTPFaultInjection", "HTTPRewrite", "HTTPBody", "CustomTag":
		return true
	}
	return false
}

// unique reports whether the items of a list must differ.
func unique(fd protoreflect.FieldDescriptor) bool {
	switch fieldName(fd) {
	case "ServiceEntry.addresses", "Server.hosts", "IstioEgressListener.hosts", "ServerTLSSettings.cipher_suites",
		"TLSConfig.cipher_suites", "TLSConfig.ecdh_curves", "MeshConfig.trust_domain_aliases",
		"LocalityLoadBalancerSetting.failover_priority", "ZoneAwareLoadBalancerSetting.failover_priority":
		return true
	}
	return fd.Name() == "hosts" || fd.Name() == "gateways" || isExportTo(fd)
}

// isExportTo reports whether a field lists the namespaces to which objects are visible.
func isExportTo(fd protoreflect.FieldDescriptor) bool {
	return strings.HasSuffix(string(fd.Name()), "export_to")
}

// textRule returns the rule for the value of a field, or for each of its values. A rule returns
// what is wrong, or nothing.
func textRule(field string) func(string) string {
	if strings.HasSuffix(field, "Provider.service") {
		return checkProviderService
	}
	switch field {
	case "DestinationRule.host":
		return checkWildcardHost
	case "Destination.host":
		return checkDestination
	case "ClientTLSSettings.sni":
		return checkHost
	case "TunnelSettings.target_host":
		return checkHostOrAddress
	case "TunnelSettings.protocol":
		return oneOf("protocol", []string{"CONNECT", "POST"})
	case "VirtualService.hosts":
		return checkVirtualHost
	case "Delegate.name":
		return checkObjectName
	case "ServiceEntry.hosts":
		return checkServiceHost
	case "Server.hosts":
		return checkServerHost
	case "IstioEgressListener.hosts":
		return checkImportedHost
	case "HTTPRedirect.authority", "HTTPRewrite.authority":
		return checkAuthority
	case "HTTPHealthCheckConfig.host", "TCPHealthCheckConfig.host":
		return checkHostOrAddress
	case "Destination.subset", "Subset.name":
		return checkSubset
	case "VirtualService.gateways", "HTTPMatchRequest.gateways", "TLSMatchAttributes.gateways",
		"L4MatchAttributes.gateways":
		return checkGatewayName
	case "VirtualService.export_to", "DestinationRule.export_to", "MeshConfig.default_virtual_service_export_to",
		"MeshConfig.default_destination_rule_export_to":
		return checkExportTo
	case "ServiceEntry.export_to", "MeshConfig.default_service_export_to":
		return checkServiceExportTo
	case "Delegate.namespace", "HTTPMatchRequest.source_namespace", "TLSMatchAttributes.source_namespace",
		"L4MatchAttributes.source_namespace", "MeshConfig.root_namespace":
		return checkDNSLabel
	case "WorkloadEntry.service_account":
		return checkObjectName
	case "WorkloadEntry.network":
		return checkNetwork
	case "WorkloadEntry.locality":
		return checkLocality
	case "Distribute.from":
		return checkLocalityPattern
	case "Failover.from", "Failover.to":
		return checkRegion
	case "LocalityLoadBalancerSetting.failover_priority":
		return checkPriority
	case "ZoneAwareLoadBalancerSetting.failover_priority":
		return checkZonePriority

	case "ServiceEntry.addresses", "TLSMatchAttributes.destination_subnets", "L4MatchAttributes.destination_subnets":
		return checkSubnet
	case "IstioIngressListener.bind":
		return checkAddress
	case "Server.bind", "IstioEgressListener.bind":
		return checkBind
	case "IstioIngressListener.default_endpoint":
		return checkDefaultEndpoint
	case "Port.name", "ServicePort.name", "SidecarPort.name":
		return checkPortName
	case "Port.protocol":
		return oneProtocol("UDP", "MYSQL", "REDIS")
	case "ServicePort.protocol":
		return oneProtocol()

	case "StringMatch.regex", "RegexRewrite.match", "ProxyStatsMatcher.inclusion_regexps":
		return checkRegex
	case "ProxyStatsMatcher.inclusion_prefixes", "ProxyStatsMatcher.inclusion_suffixes":
		return checkStatName
	case "JWTHeader.name", "JWTRule.output_payload_to_header", "ClaimToHeader.header", "HTTPHeader.name",
		"ConsistentHashLB.http_header_name", "HttpHeader.name", "RequestHeader.name",
		"EnvoyHttpGrpcV3LogProvider.additional_request_headers_to_log",
		"EnvoyHttpGrpcV3LogProvider.additional_response_headers_to_log",
		"EnvoyHttpGrpcV3LogProvider.additional_response_trailers_to_log":
		return checkHeaderName
	case "CorsPolicy.allow_headers", "CorsPolicy.expose_headers":
		return checkHeaderNameOrAll
	case "CorsPolicy.allow_methods":
		return oneOf("method", corsMethods())
	case "HTTPRedirect.uri", "HTTPRedirect.prefix_rewrite", "HTTPRewrite.uri", "RegexRewrite.rewrite", "HTTPCookie.path",
		"Attribute.value", "JWTHeader.prefix", "HTTPHeader.value":
		return checkHeaderText
	case "HTTPRedirect.scheme":
		return oneOf("scheme", []string{"http", "https"})
	case "ConsistentHashLB.http_query_parameter_name":
		return checkParameter
	case "HeaderOperations.remove":
		return checkChangedHeader
	case "HTTPCookie.name", "Attribute.name", "JWTRule.from_cookies":
		return checkCookieName
	case "HTTPRetry.retry_on":
		return checkRetryOn
	case "Abort.grpc_status":
		return oneOf("status", grpcStatuses())
	case "HTTPHealthCheckConfig.path":
		return checkProbePath
	case "HTTPHealthCheckConfig.scheme":
		return checkProbeScheme

	case "ClientTLSSettings.ca_certificates", "ClientTLSSettings.ca_crl", "ServerTLSSettings.ca_certificates",
		"ServerTLSSettings.ca_crl":
		return checkAuthorityFile
	case "ClientTLSSettings.client_certificate", "ClientTLSSettings.private_key",
		"ServerTLSSettings.server_certificate", "ServerTLSSettings.private_key",
		"TLSCertificate.server_certificate", "TLSCertificate.private_key":
		return checkCertificateFile
	case "ClientTLSSettings.credential_name", "ServerTLSSettings.credential_name",
		"ServerTLSSettings.credential_names", "ServerTLSSettings.ca_cert_credential_name":
		return checkCredential
	case "ServiceEntry.subject_alt_names", "ClientTLSSettings.subject_alt_names", "ServerTLSSettings.subject_alt_names":
		return checkCertificateName
	case "ServerTLSSettings.verify_certificate_spki":
		return checkKeyHash
	case "ServerTLSSettings.verify_certificate_hash":
		return checkCertificateHash
	case "ServerTLSSettings.cipher_suites", "TLSConfig.cipher_suites":
		return oneOf("cipher suite", cipherSuites())
	case "TLSConfig.ecdh_curves":
		return oneOf("curve", curves())

	case "Source.principals", "Source.not_principals":
		return policyValue(checkPolicyPrincipal)
	case "Source.request_principals", "Source.not_request_principals":
		return policyValue(checkPolicyName)
	case "Source.namespaces", "Source.not_namespaces":
		return policyValue(checkPolicyNamespace)
	case "Source.service_accounts", "Source.not_service_accounts":
		return policyValue(checkPolicyAccount)
	case "Source.trust_domains", "Source.not_trust_domains":
		return policyValue(checkPolicyDomain)
	case "Source.ip_blocks", "Source.not_ip_blocks", "Source.remote_ip_blocks", "Source.not_remote_ip_blocks":
		return policyValue(checkSubnet)
	case "Operation.hosts", "Operation.not_hosts":
		return policyValue(checkPolicyHost)
	case "Operation.ports", "Operation.not_ports":
		return policyValue(checkPolicyPort)
	case "Operation.methods", "Operation.not_methods":
		return policyValue(checkPolicyMethod)
	case "Operation.paths", "Operation.not_paths":
		return policyValue(checkPolicyPath)
	case "JWTRule.audiences", "JWTRule.from_params", "JWTRule.space_delimited_claims", "ClaimToHeader.claim":
		return checkFilled

	case "MeshConfig.trust_domain", "MeshConfig.trust_domain_aliases":
		return checkLowerHost
	case "MeshConfig.access_log_file", "EnvoyFileAccessLogProvider.path":
		return checkFile
	case "Zipkin.address":
		return checkCollector
	case "LogFormat.text":
		return checkFormat
	case "Server.value":
		return checkHeaderText
	case "ProviderRef.name", "Literal.value", "Environment.name":
		return checkFilled
	case "Formatter.value":
		return func(v string) string { return cmp.Or(checkFilled(v), checkFormat(v)) }
	case "Filter.expression":
		return checkLogFilter
	case "TagOverride.value":
		return checkTagValue
	case "EnvoyExternalAuthorizationHttpProvider.path_prefix", "ZipkinTracingProvider.path":
		return checkProviderPath
	case "HttpService.path":
		return checkSpanPath
	case "EnvoyExternalAuthorizationHttpProvider.status_on_error",
		"EnvoyExternalAuthorizationGrpcProvider.status_on_error":
		return checkProviderStatus
	case "EnvoyExternalAuthorizationHttpProvider.include_headers_in_check",
		"EnvoyExternalAuthorizationHttpProvider.include_request_headers_in_check",
		"EnvoyExternalAuthorizationHttpProvider.headers_to_upstream_on_allow",
		"EnvoyExternalAuthorizationHttpProvider.headers_to_downstream_on_deny",
		"EnvoyExternalAuthorizationHttpProvider.headers_to_downstream_on_allow":
		return checkProviderHeader
	}
	return func(string) string { return "" }
}

// suspicion returns a rule as textRule does. What it finds is most likely a mistake, and allowed.
func suspicion(field string) func(string) string {
	switch field {
	case "Source.principals", "Source.not_principals":
		return suspectPrincipal
	case "Operation.paths", "Operation.not_paths":
		return suspectPath
	case "ServiceEntry.hosts":
		return suspectServiceHost
	case "ServicePort.protocol":
		return suspectProtocol
	case "HTTPRewrite.uri":
		return suspectRewrite
	case "ClientTLSSettings.ca_certificates", "ClientTLSSettings.ca_crl", "ClientTLSSettings.client_certificate",
		"ClientTLSSettings.private_key", "ServerTLSSettings.ca_certificates", "ServerTLSSettings.ca_crl",
		"ServerTLSSettings.server_certificate", "ServerTLSSettings.private_key", "TLSCertificate.server_certificate",
		"TLSCertificate.private_key":
		return suspectFile
	}
	return func(string) string { return "" }
}

// oneOf is the rule for a field that has one of some values.
func oneOf(what string, values []string) func(string) string {
	return func(v string) string {
		if slices.Contains(values, v) {
			return ""
		}
		return "unknown " + what + " " + quote(v) + meantOrOneOf(v, values)
	}
}

// oneProtocol is the rule for the protocol of a port, in any case; those of except do not work.
func oneProtocol(except ...string) func(string) string {
	allowed := slices.DeleteFunc([]string{"HTTP", "HTTPS", "HTTP2", "GRPC", "GRPC-WEB", "TCP", "TLS", "MONGO", "MYSQL",
		"REDIS", "UDP"}, func(p string) bool { return slices.Contains(except, p) })
	return func(name string) string {
		switch upper := strings.ToUpper(name); {
		case slices.Contains(except, upper):
			return quote(name) + " does not work here: use one of " + strings.Join(allowed, ", ")
		case !slices.Contains(allowed, upper):
			return "unknown protocol " + quote(name) + meantOrOneOf(name, allowed)
		}
		return ""
	}
}
