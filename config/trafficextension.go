package config

import (
	"cmp"
	"slices"

	"google.golang.org/protobuf/types/known/structpb"
	extensions "istio.io/api/extensions/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"
	types "istio.io/api/type/v1beta1"
)

// The HTTP filters before which a TrafficExtension is placed. Package xds/gen/access makes the first
// two, for requests that others send to a workload.
const (
	AuthenticationFilter = "ashore.authn.tokens"
	AuthorizationFilter  = "ashore.authz.custom"
	faultFilter          = "envoy.filters.http.fault"
)

// maxLuaCode is how many bytes a script may have. Source: Istio.
const maxLuaCode = 64 << 10

// trafficExtension checks a script of Lua.
func (c *checker) trafficExtension(e *extensions.TrafficExtension) {
	switch code := e.GetLua().GetInlineCode(); {
	case e.GetWasm() != nil: // unsupported
	case e.GetLua() == nil:
		c.errorf("spec.lua", "the script is missing: write inlineCode")
	case code == "":
		c.errorf("spec.lua.inlineCode", "the script is empty")
	case len(code) > maxLuaCode:
		c.errorf("spec.lua.inlineCode", "the script has %d bytes, more than %d", len(code), maxLuaCode)
	}
}

// CompareExtensions orders TrafficExtensions as requests pass them: by phase, then by priority, the
// highest first.
func CompareExtensions(a, b *extensions.TrafficExtension) int {
	order := []extensions.TrafficExtension_ExecutionPhase{extensions.TrafficExtension_AUTHN,
		extensions.TrafficExtension_AUTHZ, extensions.TrafficExtension_STATS, extensions.TrafficExtension_UNSPECIFIED}
	return cmp.Or(cmp.Compare(slices.Index(order, a.GetPhase()), slices.Index(order, b.GetPhase())),
		cmp.Compare(b.GetPriority().GetValue(), a.GetPriority().GetValue()))
}

// ExtensionPatches returns the patches that place the script of a valid TrafficExtension, as those of
// an EnvoyFilter.
// Source: Istio, pilot/pkg/networking/core/extension; the mode of a gateway is CLIENT.
func ExtensionPatches(o *Object) *networking.EnvoyFilter {
	e := o.Spec.(*extensions.TrafficExtension)
	text := structpb.NewStringValue
	value := func(fields map[string]*structpb.Value) *structpb.Value {
		return structpb.NewStructValue(&structpb.Struct{Fields: fields})
	}
	filter := value(map[string]*structpb.Value{
		"name": text("extensions.istio.io/trafficextension/" + o.Namespace + "." + o.Name),
		"typed_config": value(map[string]*structpb.Value{
			"@type":               text("type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua"),
			"default_source_code": value(map[string]*structpb.Value{"inline_string": text(e.GetLua().GetInlineCode())}),
		}),
	})
	out := &networking.EnvoyFilter{}
	for _, place := range []struct {
		context networking.EnvoyFilter_PatchContext
		mode    types.WorkloadMode
	}{
		{networking.EnvoyFilter_SIDECAR_OUTBOUND, types.WorkloadMode_CLIENT},
		{networking.EnvoyFilter_SIDECAR_INBOUND, types.WorkloadMode_SERVER},
		{networking.EnvoyFilter_GATEWAY, types.WorkloadMode_CLIENT},
	} {
		before := &networking.EnvoyFilter_ListenerMatch_SubFilterMatch{Name: faultFilter}
		if place.context != networking.EnvoyFilter_SIDECAR_OUTBOUND {
			before.Name = extensionPlace(e.GetPhase())
		}
		for _, port := range extensionPorts(e, place.mode) {
			out.ConfigPatches = append(out.ConfigPatches, &networking.EnvoyFilter_EnvoyConfigObjectPatch{
				ApplyTo: networking.EnvoyFilter_HTTP_FILTER,
				Match: &networking.EnvoyFilter_EnvoyConfigObjectMatch{
					Context: place.context,
					ObjectTypes: &networking.EnvoyFilter_EnvoyConfigObjectMatch_Listener{Listener: &networking.EnvoyFilter_ListenerMatch{
						PortNumber: port,
						FilterChain: &networking.EnvoyFilter_ListenerMatch_FilterChainMatch{
							Filter: &networking.EnvoyFilter_ListenerMatch_FilterMatch{Name: httpManager, SubFilter: before}},
					}},
				},
				Patch: &networking.EnvoyFilter_Patch{Operation: networking.EnvoyFilter_Patch_INSERT_BEFORE,
					Value: filter.GetStructValue()},
			})
		}
	}
	return out
}

// extensionPlace returns the filter that comes after those of a phase.
func extensionPlace(phase extensions.TrafficExtension_ExecutionPhase) string {
	switch phase {
	case extensions.TrafficExtension_AUTHN:
		return AuthenticationFilter
	case extensions.TrafficExtension_AUTHZ:
		return AuthorizationFilter
	default:
		return faultFilter
	}
}

// extensionPorts returns the ports of one mode for which an extension is: zero alone stands for all,
// and an empty list for none.
func extensionPorts(e *extensions.TrafficExtension, mode types.WorkloadMode) []uint32 {
	if len(e.GetMatch()) == 0 {
		return []uint32{0}
	}
	var out []uint32
	for _, m := range e.GetMatch() {
		if m.GetMode() != mode && m.GetMode() != types.WorkloadMode_CLIENT_AND_SERVER && m.GetMode() != types.WorkloadMode_UNDEFINED {
			continue
		}
		if len(m.GetPorts()) == 0 {
			return []uint32{0}
		}
		for _, p := range m.GetPorts() {
			out = append(out, p.GetNumber())
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
