package config

import "google.golang.org/protobuf/reflect/protoreflect"

// MeshField says what becomes of one field of MeshConfig.
type MeshField struct {
	// Path is that of the field within MeshConfig, "defaultConfig.concurrency".
	Path string
	// Honoured says that the field has the effect that Istio documents.
	Honoured bool
	// Protects says that the field would protect something: set and not honoured it is an error.
	Protects bool
	// Text is what is honoured, or what stands in the way, without a final period.
	Text string

	parts    bool                          // its own fields are listed; this line is their heading
	harmless func(protoreflect.Value) bool // values that ask for nothing else than what Ashore does
}

// MeshFields lists every field of MeshConfig and of its defaultConfig.
func MeshFields() []MeshField {
	return append(meshFields(), proxyFields()...)
}

func meshFields() []MeshField {
	const (
		kubernetes = "there is no Kubernetes ingress to serve"
		telemetry  = "there are no providers of telemetry yet"
	)
	return []MeshField{
		{Path: "proxyListenPort", Honoured: true,
			Text: "the port of outbound connections that are redirected to the proxy; 15001 when unset"},
		{Path: "proxyInboundListenPort", Honoured: true,
			Text: "the port of inbound connections that are redirected to the proxy; 15006 when unset"},
		{Path: "proxyHttpPort", Honoured: true,
			Text: "the port of a forward HTTP proxy on every workload; none when unset"},
		{Path: "connectTimeout", Honoured: true, Text: "how long a proxy waits for a TCP connection; 10s when unset"},
		{Path: "hboneIdleTimeout", Text: "HBONE tunnels are not built"},
		{Path: "protocolDetectionTimeout", Honoured: true,
			Text: "how long a proxy waits for the first bytes of a connection of unknown protocol; without limit when unset or 0s"},
		{Path: "tcpKeepalive", Honoured: true,
			Text: "TCP keepalive of connections to destinations whose rule sets none"},
		{Path: "ingressClass", Text: kubernetes},
		{Path: "ingressService", Text: kubernetes},
		{Path: "ingressControllerMode", Text: kubernetes},
		{Path: "ingressSelector", Text: kubernetes},
		{Path: "enableTracing", Text: "no traces are made"},
		{Path: "accessLogFile", Honoured: true,
			Text: "the file of the access log, such as /dev/stdout; no log when unset"},
		{Path: "accessLogFormat", Honoured: true,
			Text: "the format of a line of text, or a JSON object of names and formats; Istio's default when unset"},
		{Path: "accessLogEncoding", Honoured: true, Text: "TEXT or JSON; TEXT when unset"},
		{Path: "enableEnvoyAccessLogService", Text: "logs are not sent by gRPC; use accessLogFile"},
		{Path: "disableEnvoyListenerLog", Honoured: true,
			Text: "true: connections that no filter chain takes are not logged; false: they are when accessLogFile is set"},
		{Path: "defaultConfig", parts: true, Text: "see the second table"},
		{Path: "outboundTrafficPolicy", parts: true, Text: "where connections to unknown destinations go"},
		{Path: "outboundTrafficPolicy.mode", Honoured: true,
			Text: "ALLOW_ANY or REGISTRY_ONLY (ALLOW_ANY_DYNAMIC_DNS is refused); ALLOW_ANY when outboundTrafficPolicy is unset"},
		{Path: "outboundTrafficPolicy.tls", Protects: true,
			Text: "connections to unknown destinations are passed on as they are"},
		{Path: "inboundTrafficPolicy",
			Text:     "inbound connections always go to the address that they were sent to, as with PASSTHROUGH",
			harmless: func(v protoreflect.Value) bool { return isZero(v.Message()) }},
		{Path: "configSources", Text: "sources are settings of their own in Ashore's settings file"},
		{Path: "enableAutoMtls", Honoured: true,
			Text: "whether clients speak mutual TLS to the endpoints that take it, where no DestinationRule says otherwise; true when unset"},
		{Path: "trustDomain", Honoured: true, Text: "the trust domain of identities; cluster.local when unset"},
		{Path: "trustDomainAliases", Honoured: true,
			Text: "further trust domains whose workloads count as those of trustDomain, if the mesh's roots vouch for their certificates; none when unset"},
		{Path: "caCertificates", Text: "workloads trust only the roots of Ashore's own authority"},
		{Path: "defaultServiceExportTo", Honoured: true,
			Text: "to which namespaces services without exportTo are visible; * when unset"},
		{Path: "defaultVirtualServiceExportTo", Honoured: true,
			Text: "to which namespaces VirtualServices without exportTo are visible; * when unset"},
		{Path: "defaultDestinationRuleExportTo", Honoured: true,
			Text: "to which namespaces DestinationRules without exportTo are visible; * when unset"},
		{Path: "rootNamespace", Honoured: true,
			Text: "the namespace whose Sidecar, DestinationRules and policies (PeerAuthentication, RequestAuthentication, AuthorizationPolicy) hold for the whole mesh; istio-system when unset"},
		{Path: "localityLbSetting", Honoured: true,
			Text: "how endpoints are preferred by locality, where no DestinationRule says otherwise; enabled when unset"},
		{Path: "zoneAwareLbSetting", Text: "endpoints are preferred by localityLbSetting alone"},
		{Path: "dnsRefreshRate", Honoured: true,
			Text: "how often proxies resolve the names of DNS services again; 60s when unset"},
		{Path: "h2UpgradePolicy", Honoured: true,
			Text: "whether HTTP/1.1 connections are upgraded to HTTP/2 where no DestinationRule says otherwise; DO_NOT_UPGRADE when unset"},
		{Path: "inboundClusterStatName", Text: "statistics are named after the clusters"},
		{Path: "outboundClusterStatName", Text: "statistics are named after the clusters"},
		{Path: "certificates", Text: "certificates are not written into Kubernetes secrets"},
		{Path: "serviceSettings", Text: "services are the same for all clusters"},
		{Path: "serviceScopeConfigs", Protects: true, Text: "services are the same for all clusters"},
		{Path: "enablePrometheusMerge",
			Text: "the agent shows its own metrics and Envoy's together; those of applications are not fetched", harmless: isFalse},
		{Path: "verifyCertificateAtClient",
			Text:     "the certificates of TLS destinations are always verified, unless a DestinationRule sets insecureSkipVerify",
			harmless: func(v protoreflect.Value) bool { return !isFalse(v) }},
		{Path: "ca", Protects: true, Text: "certificates are signed by Ashore's own authority"},
		{Path: "extensionProviders", Honoured: true,
			Text: "whom CUSTOM AuthorizationPolicies may ask: envoyExtAuthzHttp and envoyExtAuthzGrpc; other kinds give a warning"},
		{Path: "defaultProviders", Text: telemetry},
		{Path: "discoverySelectors", Protects: true, Text: "all namespaces are read"},
		{Path: "pathNormalization", Honoured: true,
			Text: "how request paths are normalized before they are matched; DEFAULT and unset mean BASE"},
		{Path: "defaultHttpRetryPolicy", Honoured: true,
			Text: "retries of requests whose route sets none; Istio's two attempts when unset"},
		{Path: "meshMTLS", parts: true, Text: "mutual TLS between workloads"},
		{Path: "meshMTLS.minProtocolVersion", Honoured: true, Text: "TLSV1_2 or TLSV1_3; TLSV1_2 when unset"},
		{Path: "meshMTLS.ecdhCurves", Honoured: true, Text: "the curves of key exchanges; Envoy's own when unset"},
		{Path: "meshMTLS.cipherSuites", Honoured: true,
			Text: "the ciphers of TLS 1.2; those of AES-GCM with forward secrecy when unset. Those of TLS 1.3 cannot be chosen"},
		{Path: "tlsDefaults", Protects: true,
			Text: "the TLS versions, curves and ciphers of proxies are Envoy's own defaults"},
		{Path: "defaultTrafficPolicy", Text: "write a DestinationRule for the hosts it should hold for"},
		{Path: "serviceEntryVisibility", Protects: true,
			Text: "services are visible as their exportTo and defaultServiceExportTo say"},
	}
}

func proxyFields() []MeshField {
	const (
		agent  = "this is a setting of the agent"
		traces = "no traces are made"
		old    = "Envoy takes it no more"
	)
	fields := []MeshField{
		{Path: "configPath", Text: agent},
		{Path: "binaryPath", Text: agent},
		{Path: "serviceCluster", Text: agent},
		{Path: "tracingServiceName", Text: traces},
		{Path: "drainDuration", Text: agent},
		{Path: "discoveryAddress", Text: agent},
		{Path: "discoveryRefreshDelay", Text: old},
		{Path: "zipkinAddress", Text: traces},
		{Path: "statsdUdpAddress", Text: "metrics are read by Prometheus"},
		{Path: "envoyMetricsServiceAddress", Text: "metrics are read by Prometheus"},
		{Path: "proxyAdminPort", Text: agent},
		{Path: "availabilityZone", Text: agent},
		{Path: "controlPlaneAuthPolicy", Protects: true,
			Text: "how proxies know the control plane is a setting of the agent"},
		{Path: "customConfigFile", Text: agent},
		{Path: "statNameLength", Text: old},
		{Path: "concurrency", Text: agent},
		{Path: "proxyBootstrapTemplatePath", Text: agent},
		{Path: "interceptionMode", Text: "how traffic reaches the proxy is a setting of the agent"},
		{Path: "tracing", Text: traces},
		{Path: "sds", Text: old},
		{Path: "envoyAccessLogService", Text: "logs are not sent by gRPC; use accessLogFile"},
		{Path: "envoyMetricsService", Text: "metrics are read by Prometheus"},
		{Path: "proxyMetadata", Text: agent},
		{Path: "runtimeValues", Text: agent},
		{Path: "statusPort", Text: agent},
		{Path: "extraStatTags", Text: "the tags of metrics are fixed"},
		{Path: "gatewayTopology", Protects: true, Text: "gateways trust no proxy before them"},
		{Path: "terminationDrainDuration", Text: agent},
		{Path: "meshId", Text: agent},
		{Path: "readinessProbe", Text: "a workload is probed as its WorkloadGroup, or its agent's settings, say"},
		{Path: "proxyStatsMatcher", Text: "proxies keep Envoy's own choice of statistics"},
		{Path: "holdApplicationUntilProxyStarts", Text: "applications are started by systemd, not by Ashore",
			harmless: isFalse},
		{Path: "caCertificatesPem", Text: "proxies get the roots from the agent"},
		{Path: "image", Text: "Envoy is a program of the machine, not an image"},
		{Path: "privateKeyProvider", Text: "keys are made and kept by the agent"},
		{Path: "proxyHeaders", Protects: true, Text: "proxies set the headers that Istio's do by default"},
		{Path: "fileFlushInterval", Text: "access logs are written as Envoy does by default"},
		{Path: "fileFlushMinSizeKb", Text: "access logs are written as Envoy does by default"},
		{Path: "statsCompression", Text: "statistics are compressed as their reader asks for it"},
		{Path: "connectionSettings", Protects: true, Text: "the limits of connections are Envoy's own defaults"},
	}
	for i := range fields {
		fields[i].Path = "defaultConfig." + fields[i].Path
	}
	return fields
}

// isFalse says that a BoolValue is false.
func isFalse(v protoreflect.Value) bool { return isZero(v.Message()) }

// isZero says that no field of m has a value.
func isZero(m protoreflect.Message) bool {
	zero := true
	m.Range(func(protoreflect.FieldDescriptor, protoreflect.Value) bool {
		zero = false
		return false
	})
	return zero
}
