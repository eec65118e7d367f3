package config

import (
	"math"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	extensions "istio.io/api/extensions/v1alpha1"
	mesh "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"
	security "istio.io/api/security/v1beta1"
	telemetry "istio.io/api/telemetry/v1alpha1"
	types "istio.io/api/type/v1beta1"
)

// A specification is checked in one walk over its messages. Rules of a single field are tables, by
// the name of the field: fields.go and walk.go have them. Rules between the fields of a message
// are methods, by its type.

// walk checks m and everything below it, whatever wrote it.
func (c *checker) walk(path string, m protoreflect.Message) {
	if unknown := m.GetUnknown(); len(unknown) > 0 {
		number, _, _ := protowire.ConsumeTag(unknown)
		c.errorf(path, "unknown field of number %d: the sender has a newer version of the API", number)
	}
	fields := m.Descriptor().Fields()
	if needsFields(m.Descriptor()) && isZero(m) {
		c.errorf(path, "nothing is set: write at least one of %s, or remove it", fewNames(fields))
	}
	c.message(path, m.Interface())
	for i := range fields.Len() {
		fd := fields.Get(i)
		if (m.Has(fd) || required(fd)) && len(c.problems) < MaxProblems {
			c.field(below(path, fd.JSONName()), fd, m.Get(fd))
		}
	}
}

// field checks a field that is set or required.
func (c *checker) field(path string, fd protoreflect.FieldDescriptor, v protoreflect.Value) {
	what, todo := unsupportedField(fd)
	if why := withoutEffect(fd); why != "" {
		c.warnf(path, "this has no effect: %s; remove it", why)
		return
	}
	switch {
	case what != "" && isWrapper(fd.Message()) && isZero(v.Message()): // false
	case what != "":
		c.unsupported(path, what, todo)
	case fd.IsMap():
		c.entries(path, fd, v.Map())
	case fd.IsList() && v.List().Len() > MaxItems:
		c.errorf(path, "the list has %d items, more than %d", v.List().Len(), MaxItems)
	case fd.IsList():
		c.items(path, fd, v.List())
	default:
		c.value(path, fd, v)
	}
}

func (c *checker) entries(path string, fd protoreflect.FieldDescriptor, m protoreflect.Map) {
	var keys []protoreflect.MapKey
	m.Range(func(k protoreflect.MapKey, _ protoreflect.Value) bool {
		keys = append(keys, k)
		return true
	})
	slices.SortFunc(keys, func(a, b protoreflect.MapKey) int { return strings.Compare(a.String(), b.String()) })
	for _, k := range keys {
		path := entry(path, k.String())
		c.mapEntry(path, fd, k, m.Get(k))
		if fieldName(fd) == "HTTPMatchRequest.without_headers" && isAnyValue(m.Get(k)) {
			continue
		}
		c.value(path, fd.MapValue(), m.Get(k))
	}
}

// isAnyValue says that a match is the regex "*", by which Istio means any value of a header.
func isAnyValue(match protoreflect.Value) bool {
	m, ok := match.Message().Interface().(*networking.StringMatch)
	return ok && m.GetRegex() == "*"
}

// mapEntry checks the key of an entry of a map, and what its value has to do with it.
func (c *checker) mapEntry(path string, fd protoreflect.FieldDescriptor, k protoreflect.MapKey, v protoreflect.Value) {
	switch name := k.String(); fieldName(fd) {
	case "HTTPMatchRequest.headers", "HTTPMatchRequest.without_headers":
		c.headerMatch(path, name)
	case "HTTPMatchRequest.query_params":
		c.why(path, checkParameter(name))
	case "HeaderOperations.set", "HeaderOperations.add":
		c.changedHeader(path, name, v.String())
	case "Distribute.to":
		c.why(path, checkLocalityPattern(name))
		if share := v.Uint(); share < 1 || share > 100 {
			c.errorf(path, "a share is from 1 to 100, not %d", share)
		}
	case "ProxyConfig.environment_variables", "ProxyConfig.proxy_metadata":
		c.environment(path, name, v.String())
	case "WorkloadEntry.ports":
		c.why(path, checkPortName(name))
		c.port(path, uint32(v.Uint()))
	case "PeerAuthentication.port_level_mtls":
		c.port(path, uint32(k.Uint()))
	case "MetricsOverrides.tag_overrides":
		c.why(path, checkTag(name))
	case "Tracing.custom_tags":
		c.why(path, checkFilled(name))
	case "EnvoyExternalAuthorizationHttpProvider.include_additional_headers_in_check":
		c.why(path, checkHeaderName(name))
		c.why(path, checkHeaderText(v.String()))
	}
	switch fd.Name() {
	case "labels", "match_labels", "source_labels", "selector":
		c.why(path, checkLabel(k.String(), v.String()))
	}
}

func (c *checker) items(path string, fd protoreflect.FieldDescriptor, list protoreflect.List) {
	differ, seen := unique(fd), map[string]bool{}
	for i := range list.Len() {
		path, v := at(path, i), list.Get(i)
		if differ {
			text := v.String()
			if seen[text] {
				c.errorf(path, "%s occurs twice: remove one of them", quote(text))
			}
			seen[text] = true
			if list.Len() > 1 && isExportTo(fd) && (text == "*" || text == "~") {
				c.errorf(path, "%s stands alone or not at all", quote(text))
			}
		}
		c.value(path, fd, v)
	}
}

// value checks a single value of a field.
func (c *checker) value(path string, fd protoreflect.FieldDescriptor, v protoreflect.Value) {
	if isWrapper(fd.Message()) {
		v = v.Message().Get(fd.Message().Fields().ByName("value"))
	}
	switch v := v.Interface().(type) {
	case protoreflect.Message:
		switch m := v.Interface().(type) {
		case *durationpb.Duration:
			c.duration(path, fieldName(fd), m)
			return
		case *structpb.Struct:
			if fieldName(fd) == "Patch.value" { // checked with the patch
				return
			}
			c.logLabels(path, m, fd.ContainingMessage().Parent().Name() == "EnvoyOpenTelemetryLogProvider")
			return
		case *networking.StringMatch:
			c.stringMatch(path, m, fd.ContainingMessage().IsMapEntry())
		}
		c.walk(path, v)
	case protoreflect.EnumNumber:
		c.enum(path, fd.Enum(), v)
	case string:
		c.why(path, textRule(fieldName(fd))(v))
		if why := suspicion(fieldName(fd))(v); why != "" {
			c.warnf(path, "%s", why)
		}
	case int32:
		c.number(path, fd, float64(v))
	case uint32:
		c.number(path, fd, float64(v))
	case float64:
		c.number(path, fd, v)
	}
}

func (c *checker) enum(path string, enum protoreflect.EnumDescriptor, n protoreflect.EnumNumber) {
	v := enum.Values().ByNumber(n)
	if v == nil {
		c.errorf(path, "unknown value %d of %s: the sender has a newer version of the API", n, enum.Name())
		return
	}
	if what, todo := unsupportedValue(v); what != "" {
		c.unsupported(path, what, todo)
	}
}

func (c *checker) number(path string, fd protoreflect.FieldDescriptor, n float64) {
	leastPercent := 0.0001 // proxies have millionths
	name := fieldName(fd)
	isPercent := strings.HasSuffix(name, "percent") || name == "Percent.value"
	if name == "Tracing.sampling" || name == "Tracing.random_sampling_percentage" {
		isPercent, leastPercent = true, 0.01
	}
	switch field := string(fd.Name()); {
	case name == "EnvoyFilter.priority" || name == "TrafficExtension.priority":
	case !(n >= 0) || math.IsInf(n, 0):
		c.errorf(path, "the number must not be negative, it is %.10g", n)
	case n < leastNumber(name):
		c.errorf(path, "the number must be at least %.10g, it is %.10g", leastNumber(name), n)
	case name == "ProxyConfig.status_port" && n != statusPort:
		c.errorf(path, "the port of the agent is %d on every machine: remove it", statusPort)
	case field == "port" || field == "number" || field == "target_port":
		c.port(path, uint32(n))
	case !isPercent:
	case n > 100:
		c.errorf(path, "a percentage is from 0 to 100, not %v", n)
	case n > 0 && n < leastPercent:
		c.errorf(path, "%v percent would be none: the smallest share is %v", n, leastPercent)
	}
}

// port checks the number of a port.
func (c *checker) port(path string, number uint32) {
	if number < 1 || number > 65535 {
		c.errorf(path, "a port is a number from 1 to 65535, not %d", number)
	}
}

// duration checks a time. Proxies count most times in milliseconds, and some in seconds.
func (c *checker) duration(path, name string, d *durationpb.Duration) {
	zero, seconds := false, false
	switch name {
	case "TCPSettings.idle_timeout", "HTTPSettings.idle_timeout", "HTTPRoute.timeout", "RetryBudget.budget_interval",
		"MeshConfig.protocol_detection_timeout", "ProxyConfig.termination_drain_duration":
		zero = true
	case "HTTPCookie.ttl", "CorsPolicy.max_age":
		zero, seconds = true, true
	case "TcpKeepalive.time", "TcpKeepalive.interval", "ProxyConfig.drain_duration":
		seconds = true
	}
	zero = zero || strings.HasPrefix(name, "ConnectionSettings.")
	switch v := d.AsDuration(); {
	case d.CheckValid() != nil:
		c.errorf(path, "not a time that exists: %s", d.CheckValid())
	case v < 0:
		c.errorf(path, "the time must not be negative")
	case v%time.Millisecond != 0:
		c.errorf(path, "the time must be in whole milliseconds, not %s", v)
	case v > 10*365*24*time.Hour:
		c.errorf(path, "%s is longer than ten years: is the unit right?", v)
	case v == 0 && zero:
	case seconds && (v == 0 || v%time.Second != 0):
		c.errorf(path, "the time must be in whole seconds, at least 1s, not %s", v)
	case v == 0:
		c.errorf(path, "the time must be at least 1ms")
	}
}

// message checks what the fields of m have to do with each other.
func (c *checker) message(path string, m proto.Message) {
	switch m := m.(type) {
	case *networking.VirtualService:
		c.virtualService(m)
	case *networking.HTTPRoute:
		c.httpRoute(path, m)
	case *networking.HTTPRouteDestination:
		c.oneAuthority(path+".headers", m.Headers, "")
	case *networking.HTTPMatchRequest:
		c.httpMatch(path, m)
	case *networking.HTTPRedirect:
		c.redirect(path, m)
	case *networking.HTTPDirectResponse:
		c.directResponse(path, m)
	case *networking.HTTPRewrite:
		c.rewrite(path, m)
	case *networking.Headers_HeaderOperations:
		c.changedHeaders(path+".set", m.Set)
		c.changedHeaders(path+".add", m.Add)
	case *networking.HTTPRetry:
		c.retries(path, m)
	case *networking.HTTPFaultInjection_Delay:
		c.delay(path, m)
	case *networking.HTTPFaultInjection_Abort:
		c.abort(path, m)
	case *networking.CorsPolicy:
		c.cors(path, m)
	case *networking.TLSRoute:
		c.tlsRoute(path, m)
	case *networking.TLSMatchAttributes:
		c.tlsMatch(path, m)
	case *networking.TCPRoute:
		routeDestinations(c, path+".route", m.Route)
	case *networking.L4MatchAttributes:
		c.boundGateways(path, m.Gateways)
	case *networking.DestinationRule:
		c.destinationRule(m)
	case *networking.TrafficPolicy:
		c.trafficPolicy(path, m)
	case *networking.LoadBalancerSettings:
		c.warmup(path, m)
		if m.LocalityLbSetting != nil && m.ZoneAwareLbSetting != nil {
			c.errorf(path+".zoneAwareLbSetting", "only one of localityLbSetting and zoneAwareLbSetting can be set")
		}
	case *networking.ZoneAwareLoadBalancerSetting_Failover:
		if m.From == m.To && m.From != "" {
			c.errorf(path+".to", "a region cannot fail over to itself")
		}
	case *networking.LoadBalancerSettings_ConsistentHashLB:
		c.consistentHash(path, m)
	case *networking.LocalityLoadBalancerSetting:
		c.locality(path, m)
	case *networking.ConnectionPoolSettings_HTTPSettings:
		c.httpPool(path, m)
	case *networking.OutlierDetection:
		c.outliers(path, m)
	case *networking.ClientTLSSettings:
		c.clientTLS(path, m)
	case *networking.ServerTLSSettings:
		c.serverTLS(path, m)
	case *networking.Gateway:
		c.gateway(m)
	case *networking.Server:
		c.server(path, m)
	case *networking.ServiceEntry:
		c.serviceEntry(m)
	case *networking.WorkloadEntry:
		c.workloadEntry(path, m)
	case *networking.WorkloadGroup:
		c.workloadGroup(m)
	case *networking.ReadinessProbe:
		c.probe(path, m)
	case *networking.Sidecar:
		c.sidecar(m)
	case *networking.IstioIngressListener:
		c.ingress(path, m)
	case *networking.IstioEgressListener:
		c.egress(path, m)
	case *extensions.TrafficExtension:
		c.trafficExtension(m)
	case *networking.EnvoyFilter:
		c.envoyFilter(m)
	case *networking.EnvoyFilter_EnvoyConfigObjectPatch:
		c.envoyPatch(path, m)
	case *networking.OutboundTrafficPolicy:
		c.egressProxy(path, m)
	case *types.WorkloadSelector:
		c.selector(path, m)
	case *security.PeerAuthentication:
		c.peerAuthentication(m)
	case *security.RequestAuthentication:
		c.requestAuthentication(m)
	case *security.JWTRule:
		c.jwtRule(path, m)
	case *security.AuthorizationPolicy:
		c.authorizationPolicy(m)
	case *security.Rule_From:
		c.policySource(path+".source", m.GetSource())
	case *security.Rule_To:
		c.policyOperation(path+".operation", m.GetOperation())
	case *security.Condition:
		c.policyCondition(path, m)
	case *mesh.MeshConfig_ExtensionProvider_EnvoyExternalAuthorizationHttpProvider:
		c.externalAuthorization(path, m)
	case *mesh.MeshConfig_ExtensionProvider_EnvoyExternalAuthorizationRequestBody:
		c.providerBody(path, m)
	case *mesh.MeshConfig_ExtensionProvider_OpenTelemetryTracingProvider:
		c.openTelemetry(path, m)
	case *telemetry.Tracing:
		c.tracing(path, m)
	case *telemetry.Metrics:
		c.metrics(path, m)
	case *telemetry.MetricsOverrides_TagOverride:
		c.tagOverride(path, m)
	}
}
