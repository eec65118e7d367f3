package telemetry

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tracev3 "github.com/envoyproxy/go-control-plane/envoy/config/trace/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	uuidv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/request_id/uuid/v3"
	detectorsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/tracers/opentelemetry/resource_detectors/v3"
	metadatav3 "github.com/envoyproxy/go-control-plane/envoy/type/metadata/v3"
	tagv3 "github.com/envoyproxy/go-control-plane/envoy/type/tracing/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	mesh "istio.io/api/mesh/v1alpha1"
	telemetry "istio.io/api/telemetry/v1alpha1"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/xds/gen/envoy"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// tracing is how one side traces requests.
type tracing struct {
	// service receives the spans. Its provider is nil if there are none.
	service service
	// sampling is the percentage of requests without a trace that begin one.
	sampling float64
	tags     map[string]*telemetry.Tracing_CustomTag
	// istioTags adds Istio's tags. clusterID is one of them.
	istioTags bool
	clusterID string
	// maxPath is the length of a path; zero: Envoy's default, 256.
	maxPath uint32
	// byRequestID keeps the decision to sample in x-request-id.
	byRequestID bool
	// noPropagation leaves the trace out of requests to others.
	noPropagation bool
}

// tracing merges the Telemetry objects on top of the mesh's defaults, field by field. Custom tags
// replace those of the level above. Source: Istio, Telemetries.Tracing.
func (s Settings) tracing(by Reporter) tracing {
	defaults := s.spans
	t := tracing{
		sampling: cmp.Or(defaults.GetSampling(), 1), tags: meshTags(defaults.GetCustomTags()),
		istioTags: defaults.GetEnableIstioTags() == nil || defaults.EnableIstioTags.Value,
		clusterID: s.mesh.Cluster(), maxPath: defaults.GetMaxPathTagLength(), byRequestID: true,
	}
	names, disabled := s.mesh.Config.GetDefaultProviders().GetTracing(), false
	for _, spec := range s.specs() {
		for _, e := range spec.Tracing {
			if !by.matches(e.GetMatch().GetMode()) {
				continue
			}
			if named := namesOf(e.Providers); len(named) > 0 {
				names = named
			}
			if e.RandomSamplingPercentage != nil {
				t.sampling = e.RandomSamplingPercentage.Value
			}
			if len(e.CustomTags) > 0 {
				t.tags = e.CustomTags
			}
			for _, field := range []struct {
				value *wrapperspb.BoolValue
				to    *bool
			}{
				{e.DisableSpanReporting, &disabled}, {e.UseRequestIdForTraceSampling, &t.byRequestID},
				{e.EnableIstioTags, &t.istioTags}, {e.DisableContextPropagation, &t.noPropagation},
			} {
				if field.value != nil {
					*field.to = field.value.Value
				}
			}
		}
	}
	if len(names) > 0 && !disabled {
		t.service, _ = s.serviceOf(s.provider(names[0], config.Spans))
	}
	return t
}

// meshTags returns tags of MeshConfig as those of Telemetry objects. Both messages have the same
// encoding, without the formatters of the latter.
func meshTags(tags map[string]*mesh.Tracing_CustomTag) map[string]*telemetry.Tracing_CustomTag {
	out := map[string]*telemetry.Tracing_CustomTag{}
	for name, from := range tags {
		out[name] = &telemetry.Tracing_CustomTag{}
		if err := proto.Unmarshal(resource.Encode(from), out[name]); err != nil {
			panic(err) // what we encoded ourselves
		}
	}
	return out
}

// build returns the tracing of a connection manager. Requests that are not sampled pass the trace
// on too.
func (t tracing) build() *hcmv3.HttpConnectionManager_Tracing {
	p := t.service.provider
	out := &hcmv3.HttpConnectionManager_Tracing{
		ClientSampling: &typev3.Percent{Value: 100}, RandomSampling: &typev3.Percent{Value: t.sampling},
		OverallSampling: &typev3.Percent{Value: 100}, CustomTags: t.customTags(), NoContextPropagation: t.noPropagation,
	}
	if n := cmp.Or(p.GetOpentelemetry().GetMaxTagLength(), p.GetZipkin().GetMaxTagLength(), t.maxPath); n > 0 {
		out.MaxPathTagLength = wrapperspb.UInt32(n)
	}
	name, tracer := "envoy.tracers.zipkin", t.service.zipkin(p.GetZipkin())
	if o := p.GetOpentelemetry(); o != nil {
		name, tracer = "envoy.tracers.opentelemetry", t.service.openTelemetry(o)
	}
	out.Provider = &tracev3.Tracing_Http{Name: name,
		ConfigType: &tracev3.Tracing_Http_TypedConfig{TypedConfig: envoy.Packed(tracer)}}
	return out
}

// requestID returns how requests get their x-request-id; nil: as by default.
func (t tracing) requestID() *hcmv3.RequestIDExtension {
	if t.byRequestID {
		return nil
	}
	return &hcmv3.RequestIDExtension{TypedConfig: envoy.Packed(&uuidv3.UuidRequestIdConfig{
		UseRequestIdForTraceSampling: wrapperspb.Bool(false)})}
}

// openTelemetry sends spans by gRPC, or by HTTP.
func (s service) openTelemetry(p *mesh.MeshConfig_ExtensionProvider_OpenTelemetryTracingProvider) proto.Message {
	out := &tracev3.OpenTelemetryConfig{ResourceDetectors: resourceDetectors()}
	if h := p.GetHttp(); h != nil {
		out.HttpService = s.http("/"+strings.TrimPrefix(h.Path, "/"), h.Timeout, 3*time.Second, h.Headers)
		return out
	}
	out.GrpcService = s.grpc()
	out.GrpcService.Timeout = p.GetGrpc().GetTimeout()
	for _, h := range p.GetGrpc().GetInitialMetadata() {
		out.GrpcService.InitialMetadata = append(out.GrpcService.InitialMetadata,
			&corev3.HeaderValue{Key: h.Name, Value: h.GetValue()})
	}
	return out
}

// resourceDetectors name the service in what OpenTelemetry gets: the agent sets the environment
// variable OTEL_RESOURCE_ATTRIBUTES for Envoy. A name in the tracer would make listeners differ.
func resourceDetectors() []*corev3.TypedExtensionConfig {
	const name = "envoy.tracers.opentelemetry.resource_detectors.environment"
	return []*corev3.TypedExtensionConfig{envoy.Extension(name, &detectorsv3.EnvironmentResourceDetectorConfig{})}
}

// zipkin sends spans as JSON. The service in them is the cluster of Envoy's node.
func (s service) zipkin(p *mesh.MeshConfig_ExtensionProvider_ZipkinTracingProvider) proto.Message {
	out := &tracev3.ZipkinConfig{
		CollectorEndpointVersion: tracev3.ZipkinConfig_HTTP_JSON,
		CollectorService: s.http(cmp.Or(p.GetPath(), "/api/v2/spans"), p.GetTimeout(), 5*time.Second,
			p.GetHeaders()),
		TraceId_128Bit:    !p.GetEnable_64BitTraceId(),
		SharedSpanContext: wrapperspb.Bool(false),
	}
	if p.GetTraceContextOption() == mesh.MeshConfig_ExtensionProvider_ZipkinTracingProvider_USE_B3_WITH_W3C_PROPAGATION {
		out.TraceContextOption = tracev3.ZipkinConfig_USE_B3_WITH_W3C_PROPAGATION
	}
	return out
}

// grpc calls the service by gRPC.
func (s service) grpc() *corev3.GrpcService {
	return &corev3.GrpcService{TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{
		EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{ClusterName: s.cluster(), Authority: s.host}}}
}

// http calls a path of the service. A nil timeout is the default.
func (s service) http(path string, timeout *durationpb.Duration, byDefault time.Duration,
	headers []*mesh.MeshConfig_ExtensionProvider_HttpHeader) *corev3.HttpService {
	if timeout == nil {
		timeout = durationpb.New(byDefault)
	}
	out := &corev3.HttpService{HttpUri: &corev3.HttpUri{Uri: "http://" + s.host + path, Timeout: timeout,
		HttpUpstreamType: &corev3.HttpUri_Cluster{Cluster: s.cluster()}}}
	for _, h := range headers {
		out.RequestHeadersToAdd = append(out.RequestHeadersToAdd, &corev3.HeaderValueOption{
			Header:       &corev3.HeaderValue{Key: h.Name, Value: h.GetValue()},
			AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
		})
	}
	return out
}

// customTags returns the tags of all spans, by name. One that an operator configured replaces
// Istio's of the same name.
func (t tracing) customTags() (out []*tagv3.CustomTag) {
	if t.istioTags {
		out = slices.DeleteFunc(istioTags(t.clusterID), func(tag *tagv3.CustomTag) bool {
			_, replaced := t.tags[tag.Tag]
			return replaced
		})
	}
	for name, from := range t.tags {
		tag := &tagv3.CustomTag{Tag: name}
		switch {
		case from.GetLiteral() != nil:
			tag = literal(name, from.GetLiteral().Value)
		case from.GetEnvironment() != nil:
			tag.Type = &tagv3.CustomTag_Environment_{Environment: &tagv3.CustomTag_Environment{
				Name: from.GetEnvironment().Name, DefaultValue: from.GetEnvironment().DefaultValue}}
		case from.GetHeader() != nil:
			tag.Type = &tagv3.CustomTag_RequestHeader{RequestHeader: &tagv3.CustomTag_Header{
				Name: from.GetHeader().Name, DefaultValue: from.GetHeader().DefaultValue}}
		default:
			tag.Type = &tagv3.CustomTag_Value{Value: from.GetFormatter().GetValue()}
		}
		out = append(out, tag)
	}
	slices.SortFunc(out, func(a, b *tagv3.CustomTag) int { return strings.Compare(a.Tag, b.Tag) })
	return out
}

func literal(tag, value string) *tagv3.CustomTag {
	return &tagv3.CustomTag{Tag: tag, Type: &tagv3.CustomTag_Literal_{Literal: &tagv3.CustomTag_Literal{Value: value}}}
}

// istioTags are the workload of the proxy, and what policies that are only tried would have done.
// Envoy reads the workload in its node, so that listeners do not differ. Source: Istio,
// buildServiceTags and optionalPolicyTags.
func istioTags(clusterID string) []*tagv3.CustomTag {
	const metadata = "xds.node.metadata"
	text := func(tag, expression string) *tagv3.CustomTag {
		return &tagv3.CustomTag{Tag: "istio." + tag, Type: &tagv3.CustomTag_Value{Value: "%CEL(" + expression + ")%"}}
	}
	known := func(name, otherwise string) string {
		return "'" + name + "' in " + metadata + " ? " + metadata + "['" + name + "'] : '" + otherwise + "'"
	}
	out := []*tagv3.CustomTag{
		text("canonical_service", known("CANONICAL_SERVICE", "unknown")),
		text("canonical_revision", known("CANONICAL_REVISION", "latest")),
		text("namespace", known("NAMESPACE", "default")), literal("istio.cluster_id", clusterID),
		text("mesh_id", known("MESH_ID", "unknown")),
	}
	for _, action := range []string{"allow", "deny"} {
		tag, key := "istio.authorization.dry_run."+action+"_policy.", "istio_dry_run_"+action+"_"
		out = append(out, fromRBAC(tag+"name", key+"shadow_effective_policy_id"),
			fromRBAC(tag+"result", key+"shadow_engine_result"))
	}
	return out
}

// fromRBAC is a tag that the filter of policies leaves under a key.
func fromRBAC(tag, key string) *tagv3.CustomTag {
	request := &metadatav3.MetadataKind_Request_{Request: &metadatav3.MetadataKind_Request{}}
	segment := &metadatav3.MetadataKey_PathSegment_Key{Key: key}
	return &tagv3.CustomTag{Tag: tag, Type: &tagv3.CustomTag_Metadata_{Metadata: &tagv3.CustomTag_Metadata{
		Kind: &metadatav3.MetadataKind{Kind: request},
		MetadataKey: &metadatav3.MetadataKey{Key: "envoy.filters.http.rbac",
			Path: []*metadatav3.MetadataKey_PathSegment{{Segment: segment}}},
	}}}
}
