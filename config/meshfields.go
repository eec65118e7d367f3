package config

import "google.golang.org/protobuf/reflect/protoreflect"

// meshField says what becomes of one field of MeshConfig.
type meshField struct {
	path   string // within MeshConfig, "defaultConfig.concurrency"
	status fieldStatus
	text   string // what is implemented, or why it is refused, without a final period
}

type fieldStatus string

const (
	honoured fieldStatus = "yes"
	inParts  fieldStatus = "in part" // its own fields are in the table, too
	ignored  fieldStatus = "no"
	refused  fieldStatus = "no, refused" // it would protect something
)

// allMeshFields lists every field of MeshConfig and of its defaultConfig.
func allMeshFields() []meshField { return append(meshFields(), proxyFields()...) }

func meshFields() []meshField {
	const (
		kubernetes = "there is no Kubernetes ingress to serve"
	)
	return []meshField{
		{"proxyListenPort", honoured,
			"the port of outbound connections that are redirected to the proxy; 15001 when unset"},
		{"proxyInboundListenPort", honoured,
			"the port of inbound connections that are redirected to the proxy; 15006 when unset"},
		{"proxyHttpPort", honoured, "the port of a forward HTTP proxy on every workload; none when unset"},
		{"connectTimeout", honoured, "how long a proxy waits for a TCP connection; 10s when unset"},
		{"hboneIdleTimeout", ignored, "HBONE tunnels are not built"},
		{"protocolDetectionTimeout", honoured,
			"how long a proxy waits for the first bytes of a connection of unknown protocol; without limit when unset or 0s"},
		{"tcpKeepalive", honoured, "TCP keepalive of connections to destinations whose rule sets none"},
		{"ingressClass", ignored, kubernetes},
		{"ingressService", ignored, kubernetes},
		{"ingressControllerMode", ignored, kubernetes},
		{"ingressSelector", ignored, kubernetes},
		{"enableTracing", honoured,
			"true: spans go to defaultConfig.tracing.zipkin where neither defaultProviders.tracing nor a Telemetry says otherwise"},
		{"accessLogFile", honoured, "the file of the access log, such as /dev/stdout; no log when unset"},
		{"accessLogFormat", honoured,
			"the format of a line of text, or a JSON object of names and formats; Istio's default when unset"},
		{"accessLogEncoding", honoured, "TEXT or JSON; TEXT when unset"},
		{"enableEnvoyAccessLogService", ignored, "define a provider envoyHttpAls and name it in defaultProviders.accessLogging"},
		{"disableEnvoyListenerLog", honoured,
			"true: connections that match no filter chain are not logged; false: they are when accessLogFile is set"},
		{"defaultConfig", inParts, "see the second table"},
		{"outboundTrafficPolicy", inParts, "where connections to unknown destinations go"},
		{"outboundTrafficPolicy.mode", honoured,
			"ALLOW_ANY, REGISTRY_ONLY or ALLOW_ANY_DYNAMIC_DNS; ALLOW_ANY when outboundTrafficPolicy is unset"},
		{"outboundTrafficPolicy.tls", honoured,
			"the TLS of connections to unknown hosts, for ALLOW_ANY_DYNAMIC_DNS only. ISTIO_MUTUAL and credentialName are refused"},
		{"inboundTrafficPolicy", ignored,
			"inbound connections always go to the address that they were sent to, as with PASSTHROUGH"},
		{"configSources", ignored, "sources are settings of their own in Ashore's settings file"},
		{"enableAutoMtls", honoured,
			"whether clients use mutual TLS with the endpoints that accept it, where no DestinationRule says otherwise; true when unset"},
		{"trustDomain", honoured, "the trust domain of identities; cluster.local when unset"},
		{"trustDomainAliases", honoured,
			"further trust domains whose workloads count as those of trustDomain, if a root of the mesh signed their certificates; none when unset"},
		{"caCertificates", ignored, "workloads trust only the roots of Ashore's own authority"},
		{"defaultServiceExportTo", honoured, "to which namespaces services without exportTo are visible; * when unset"},
		{"defaultVirtualServiceExportTo", honoured,
			"to which namespaces VirtualServices without exportTo are visible; * when unset"},
		{"defaultDestinationRuleExportTo", honoured,
			"to which namespaces DestinationRules without exportTo are visible; * when unset"},
		{"rootNamespace", honoured,
			"the namespace whose Sidecar, DestinationRules and policies (PeerAuthentication, RequestAuthentication, AuthorizationPolicy) apply to the whole mesh; istio-system when unset"},
		{"localityLbSetting", honoured,
			"how endpoints are preferred by locality, where no DestinationRule says otherwise; enabled when unset"},
		{"zoneAwareLbSetting", honoured,
			"how proxies prefer endpoints of their own zone, where no DestinationRule sets zoneAwareLbSetting or localityLbSetting; needs ISTIO_META_ENABLE_SELF_DISCOVERY in defaultConfig.proxyMetadata"},
		{"dnsRefreshRate", honoured, "how often proxies resolve the names of DNS services again; 60s when unset"},
		{"h2UpgradePolicy", honoured,
			"whether HTTP/1.1 connections are upgraded to HTTP/2 where no DestinationRule says otherwise; DO_NOT_UPGRADE when unset"},
		{"inboundClusterStatName", ignored, "statistics are named after the clusters"},
		{"outboundClusterStatName", ignored, "statistics are named after the clusters"},
		{"certificates", ignored, "certificates are not written into Kubernetes secrets"},
		{"serviceSettings", ignored, "services are the same for all clusters"},
		{"serviceScopeConfigs", refused, "it is about Istio's ambient mode with several clusters"},
		{"enablePrometheusMerge", honoured,
			"whether agents add the metrics of the application, which annotations of its WorkloadGroup name, to their own; true when unset"},
		{"verifyCertificateAtClient", ignored,
			"the certificates of TLS destinations are always verified, unless a DestinationRule sets insecureSkipVerify"},
		{"ca", refused, "certificates are signed by Ashore's own authority"},
		{"extensionProviders", honoured,
			"the services that CUSTOM AuthorizationPolicies ask, and those that receive metrics, access logs and spans; see the third table"},
		{"defaultProviders", honoured,
			"the providers of metrics, accessLogging and tracing where no Telemetry names one; metrics is [prometheus] when unset, and an empty list counts nothing"},
		{"discoverySelectors", refused, "namespaces have no labels without Kubernetes; choose what is read by the sources of the settings file"},
		{"pathNormalization", honoured,
			"how request paths are normalized before they are matched; DEFAULT and unset mean BASE"},
		{"defaultHttpRetryPolicy", honoured,
			"retries of requests whose route sets none; Istio's two attempts when unset"},
		{"meshMTLS", inParts, "mutual TLS between workloads"},
		{"meshMTLS.minProtocolVersion", honoured, "TLSV1_2 or TLSV1_3; TLSV1_2 when unset"},
		{"meshMTLS.ecdhCurves", honoured, "the curves of key exchanges; Envoy's own when unset"},
		{"meshMTLS.cipherSuites", honoured,
			"the ciphers of TLS 1.2; those of AES-GCM with forward secrecy when unset. Those of TLS 1.3 cannot be chosen"},
		{"tlsDefaults", honoured,
			"the lowest TLS version, the ciphers and the curves of Gateway and Sidecar servers that set none. Ciphers and curves also apply to the TLS of DestinationRules. meshMTLS is for mutual TLS of the mesh"},
		{"defaultTrafficPolicy", honoured,
			"the connectionPool and outlierDetection of destinations whose DestinationRule sets none; those of a rule replace all of it"},
		{"serviceEntryVisibility", refused, "namespaces have no labels without Kubernetes; set exportTo, or defaultServiceExportTo"},
	}
}

func proxyFields() []meshField {
	const (
		agent  = "this is a setting of the agent"
		old    = "current Envoys have no such setting"
		tracer = "define a provider opentelemetry and name it in defaultProviders.tracing"
	)
	fields := []meshField{
		{"configPath", ignored, agent},
		{"binaryPath", ignored, agent},
		{"serviceCluster", ignored, agent},
		{"tracingServiceName", ignored, "services are called APP.NAMESPACE in spans"},
		{"drainDuration", honoured,
			"how long connections of a changed listener may stay open. Applies when agents restart; envoy.drainTime of an agent takes precedence"},
		{"discoveryAddress", ignored, agent},
		{"discoveryRefreshDelay", ignored, old},
		{"zipkinAddress", ignored, "set defaultConfig.tracing.zipkin.address"},
		{"statsdUdpAddress", ignored, "metrics are read by Prometheus"},
		{"envoyMetricsServiceAddress", ignored, "metrics are read by Prometheus"},
		{"proxyAdminPort", ignored, agent},
		{"availabilityZone", ignored, agent},
		{"controlPlaneAuthPolicy", honoured, "agents with an identity always use mutual TLS, also with NONE"},
		{"customConfigFile", ignored, agent},
		{"statNameLength", ignored, old},
		{"concurrency", honoured,
			"the worker threads of Envoy; 0 is one for each processor. Applies when agents restart; envoy.concurrency of an agent takes precedence"},
		{"proxyBootstrapTemplatePath", ignored, agent},
		{"interceptionMode", ignored, "how traffic reaches the proxy is a setting of the agent"},
		{"tracing", inParts, "how requests are traced where no Telemetry says otherwise"},
		{"tracing.zipkin", honoured, "the address of the collector that enableTracing uses: a host of the mesh and a port"},
		{"tracing.lightstep", ignored, tracer},
		{"tracing.datadog", ignored, tracer},
		{"tracing.stackdriver", ignored, tracer},
		{"tracing.openCensusAgent", ignored, tracer},
		{"tracing.customTags", honoured, "tags of all spans: literal, environment or header"},
		{"tracing.maxPathTagLength", honoured, "the length of a path in spans; 256 when unset"},
		{"tracing.sampling", honoured, "the percentage of requests that begin a trace; 1 when unset or 0"},
		{"tracing.tlsSettings", refused, "the TLS of a collector is that of its DestinationRule"},
		{"tracing.enableIstioTags", honoured, "whether spans have Istio's tags, istio.canonical_service and others; true when unset"},
		{"sds", ignored, old},
		{"envoyAccessLogService", ignored, "define a provider envoyHttpAls and name it in defaultProviders.accessLogging"},
		{"envoyMetricsService", ignored, "metrics are read by Prometheus"},
		{"proxyMetadata", honoured,
			"environment variables of Envoy. Applies when agents restart. ISTIO_META_CLUSTER_ID is the cluster ID in metrics, the trust domain when unset. ISTIO_META_ENABLE_SELF_DISCOVERY, with the value true, is for zoneAwareLbSetting. Other ISTIO_META_ variables have no effect"},
		{"runtimeValues", ignored, agent},
		{"statusPort", honoured, "15020, the port of every agent; others are refused"},
		{"extraStatTags", ignored, "the tags of metrics are fixed"},
		{"gatewayTopology", honoured,
			"what is in front of gateways: numTrustedProxies, forwardClientCertDetails, proxyProtocol; sidecars ignore it"},
		{"terminationDrainDuration", honoured,
			"how long shutdown waits for open connections; drain.maximum of an agent takes precedence"},
		{"meshId", ignored, agent},
		{"readinessProbe", ignored, "the WorkloadGroup has the probe"},
		{"proxyStatsMatcher", honoured, "which further statistics proxies keep. Applies when agents restart"},
		{"holdApplicationUntilProxyStarts", ignored, "applications are started by systemd, not by Ashore"},
		{"caCertificatesPem", ignored, "proxies get the roots from the agent"},
		{"image", ignored, "Envoy is a program of the machine, not an image"},
		{"privateKeyProvider", ignored, "keys are made and kept by the agent"},
		{"proxyHeaders", honoured,
			"which headers proxies set. forwardedClientCert is SANITIZE_SET on sidecars when unset. metadataExchangeHeaders has no effect: proxies never send these headers"},
		{"fileFlushInterval", ignored, "access logs are written as Envoy does by default"},
		{"fileFlushMinSizeKb", ignored, "access logs are written as Envoy does by default"},
		{"statsCompression", ignored, "statistics are compressed for readers that accept it"},
		{"connectionSettings", honoured,
			"buffers, timeouts, HTTP/2 and normalization of connections from clients; the profile EDGE is for gateways. listenerConnectionLimit and globalDownstreamConnectionLimit are refused"},
	}
	for i := range fields {
		fields[i].path = "defaultConfig." + fields[i].path
	}
	return fields
}

// isZero says that no field of m has a value.
func isZero(m protoreflect.Message) bool {
	zero := true
	m.Range(func(protoreflect.FieldDescriptor, protoreflect.Value) bool {
		zero = false
		return false
	})
	return zero
}
