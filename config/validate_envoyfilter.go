package config

import (
	"regexp"
	"strings"

	networking "istio.io/api/networking/v1alpha3"
)

// maxProxyVersion is how long a pattern of versions may be. Source: Istio.
const maxProxyVersion = 1024

// httpManager is the network filter that has the HTTP filters.
const httpManager = "envoy.filters.network.http_connection_manager"

// envoyFilter checks which proxies an EnvoyFilter selects.
func (c *checker) envoyFilter(f *networking.EnvoyFilter) {
	if f.WorkloadSelector != nil && len(f.WorkloadSelector.Labels) == 0 {
		c.warnf("spec.workloadSelector", "there are no labels: the patches apply to all proxies of the namespace")
	}
}

// envoyPatch checks one patch: that its parts fit together, and its value.
// Source: Istio, pkg/config/validation/envoyfilter, which accepts some patches that have no effect.
func (c *checker) envoyPatch(path string, p *networking.EnvoyFilter_EnvoyConfigObjectPatch) {
	operation := p.GetPatch().GetOperation()
	switch {
	case p.ApplyTo == networking.EnvoyFilter_INVALID:
		c.errorf(path+".applyTo", "applyTo is missing: write what is patched, such as HTTP_FILTER")
	case p.ApplyTo == networking.EnvoyFilter_BOOTSTRAP: // refused by unsupportedValue
	case operation == networking.EnvoyFilter_Patch_INVALID:
		c.errorf(path+".patch.operation", "the operation is missing: write one, such as MERGE or INSERT_BEFORE")
	case operation != networking.EnvoyFilter_Patch_REMOVE && p.Patch.Value == nil:
		c.errorf(path+".patch.value", "the value is missing: only REMOVE has none")
	case len(c.problems) < MaxProblems:
		c.patchMatch(path+".match", p)
		if why := PatchIgnored(p); why != "" {
			c.warnf(path, "the patch has no effect, as in Istio: %s", why)
			return
		}
		c.patchValue(path+".patch.value", p)
	}
}

// PatchIgnored returns why a patch has no effect; empty: it has one.
// Source: Istio, pilot/pkg/networking/core/envoyfilter, which ignores these patches.
func PatchIgnored(p *networking.EnvoyFilter_EnvoyConfigObjectPatch) string {
	operation, works := p.GetPatch().GetOperation(), true
	replaces := operation == networking.EnvoyFilter_Patch_REPLACE
	switch p.ApplyTo {
	case networking.EnvoyFilter_ROUTE_CONFIGURATION:
		works = PatchMerges(operation)
	case networking.EnvoyFilter_EXTENSION_CONFIG:
		works = PatchInserts(operation)
	case networking.EnvoyFilter_LISTENER, networking.EnvoyFilter_CLUSTER:
		works = !replaces
	}
	switch {
	case !works:
		return "there is no " + operation.String() + " of " + p.ApplyTo.String()
	case (replaces || operation == networking.EnvoyFilter_Patch_REMOVE) && PatchesFilter(p.ApplyTo) && !PatchNames(p):
		return operation.String() + " of a filter needs its name in match"
	}
	return ""
}

// PatchMerges reports whether an operation merges.
func PatchMerges(operation networking.EnvoyFilter_Patch_Operation) bool {
	return operation == networking.EnvoyFilter_Patch_MERGE ||
		operation == networking.EnvoyFilter_Patch_MERGE_AND_REPLACE_LIST
}

// PatchInserts reports whether an operation adds something.
func PatchInserts(operation networking.EnvoyFilter_Patch_Operation) bool {
	switch operation {
	case networking.EnvoyFilter_Patch_ADD, networking.EnvoyFilter_Patch_INSERT_FIRST,
		networking.EnvoyFilter_Patch_INSERT_BEFORE, networking.EnvoyFilter_Patch_INSERT_AFTER:
		return true
	}
	return false
}

// PatchNames reports whether the match of a patch of filters or routes says which one is meant.
func PatchNames(p *networking.EnvoyFilter_EnvoyConfigObjectPatch) bool {
	listener := p.GetMatch().GetListener()
	switch p.ApplyTo {
	case networking.EnvoyFilter_LISTENER_FILTER:
		return listener.GetListenerFilter() != ""
	case networking.EnvoyFilter_NETWORK_FILTER:
		return listener.GetFilterChain().GetFilter() != nil
	case networking.EnvoyFilter_HTTP_FILTER:
		return listener.GetFilterChain().GetFilter().GetSubFilter() != nil
	case networking.EnvoyFilter_HTTP_ROUTE:
		return p.GetMatch().GetRouteConfiguration().GetVhost().GetRoute() != nil
	}
	return true
}

// PatchesFilter reports whether filters are what is patched.
func PatchesFilter(to networking.EnvoyFilter_ApplyTo) bool {
	return to == networking.EnvoyFilter_LISTENER_FILTER || to == networking.EnvoyFilter_NETWORK_FILTER ||
		to == networking.EnvoyFilter_HTTP_FILTER
}

// patchMatch checks what a patch matches.
func (c *checker) patchMatch(path string, p *networking.EnvoyFilter_EnvoyConfigObjectPatch) {
	m, kind := p.GetMatch(), ""
	switch p.ApplyTo {
	case networking.EnvoyFilter_CLUSTER:
		kind = "cluster"
	case networking.EnvoyFilter_ROUTE_CONFIGURATION, networking.EnvoyFilter_VIRTUAL_HOST, networking.EnvoyFilter_HTTP_ROUTE:
		kind = "routeConfiguration"
	case networking.EnvoyFilter_EXTENSION_CONFIG:
	default:
		kind = "listener"
	}
	for _, other := range []string{"listener", "routeConfiguration", "cluster", "waypoint"} {
		if other != kind && m != nil && isSet(m, other) {
			c.errorf(below(path, other), "%s is not matched by %s", p.ApplyTo, other)
		}
	}
	if v := m.GetProxy().GetProxyVersion(); len(v) > maxProxyVersion {
		c.errorf(path+".proxy.proxyVersion", "the pattern has more than %d characters", maxProxyVersion)
	} else if _, err := regexp.Compile(v); err != nil {
		c.errorf(path+".proxy.proxyVersion", "not a regular expression: %v", err)
	}
	if m.GetListener().GetPortName() != "" {
		c.warnf(path+".listener.portName", "this field has no effect, as in Istio: write portNumber")
	}
	c.filterMatch(path+".listener.filterChain.filter", p)
}

// filterMatch checks the names of filters in a match.
func (c *checker) filterMatch(path string, p *networking.EnvoyFilter_EnvoyConfigObjectPatch) {
	f := p.GetMatch().GetListener().GetFilterChain().GetFilter()
	switch sub := f.GetSubFilter(); {
	case f == nil:
		return
	case f.Name == "":
		c.errorf(path+".name", "the name of the filter is missing")
	case !PatchesFilter(p.ApplyTo):
		c.warnf(path, "the filter has no effect on %s", p.ApplyTo)
	case sub == nil:
	case p.ApplyTo != networking.EnvoyFilter_HTTP_FILTER:
		c.errorf(path+".subFilter", "only HTTP_FILTER is matched by subFilter")
	case f.Name != httpManager && f.Name != "envoy.http_connection_manager":
		c.errorf(path+".name", "a subFilter is one of the filter %s", httpManager)
	case sub.Name == "":
		c.errorf(path+".subFilter.name", "the name of the filter is missing")
	}
	for _, name := range []string{f.Name, f.GetSubFilter().GetName()} {
		if strings.HasPrefix(name, "envoy.") && !strings.HasPrefix(name, "envoy.filters.") {
			c.warnf(path, "no filter has the old name %s: names begin with envoy.filters", quote(name))
		}
	}
}
