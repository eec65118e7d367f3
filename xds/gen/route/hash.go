package route

import (
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/xds/gen/destination"
)

// hashing are the rules that choose endpoints by a property of the request. Made from a list of
// destinations when it changed; most have none.
type hashing struct {
	byHost map[string]*push.DestinationRule
}

func newHashing(d *push.Destinations) *hashing {
	h := &hashing{byHost: map[string]*push.DestinationRule{}}
	for _, dest := range d.Items() {
		if dest.Rule != nil && hashes(dest.Rule.Spec) {
			h.byHost[dest.Service.Host] = dest.Rule
		}
	}
	return h
}

// hashes says whether any policy of a rule does.
func hashes(rule *networking.DestinationRule) bool {
	policies := []*networking.TrafficPolicy{rule.TrafficPolicy}
	for _, s := range rule.Subsets {
		policies = append(policies, s.TrafficPolicy)
	}
	for _, p := range policies {
		if p.GetLoadBalancer().GetConsistentHash() != nil {
			return true
		}
		for _, l := range p.GetPortLevelSettings() {
			if l.GetLoadBalancer().GetConsistentHash() != nil {
				return true
			}
		}
	}
	return false
}

// service is how requests to a port of a host are hashed; nil: they are not.
func (h *hashing) service(host string, port uint32) *networking.LoadBalancerSettings_ConsistentHashLB {
	rule := h.byHost[host]
	if rule == nil {
		return nil
	}
	return destination.PolicyFor(rule, nil, port).Balance.GetConsistentHash()
}

// destination is how requests to a destination are hashed, its subset considered.
func (h *hashing) destination(d *networking.Destination,
	port uint32) *networking.LoadBalancerSettings_ConsistentHashLB {
	rule := h.byHost[d.Host]
	if rule == nil {
		return nil
	}
	return destination.PolicyFor(rule, destination.SubsetOf(rule, d.Subset), port).Balance.GetConsistentHash()
}

// hashPolicy says which property of a request is hashed; nil: none.
// Source: istio.io, ConsistentHashLB.
func hashPolicy(h *networking.LoadBalancerSettings_ConsistentHashLB) *routev3.RouteAction_HashPolicy {
	switch k := h.GetHashKey().(type) {
	case *networking.LoadBalancerSettings_ConsistentHashLB_HttpHeaderName:
		return &routev3.RouteAction_HashPolicy{PolicySpecifier: &routev3.RouteAction_HashPolicy_Header_{
			Header: &routev3.RouteAction_HashPolicy_Header{HeaderName: k.HttpHeaderName},
		}}
	case *networking.LoadBalancerSettings_ConsistentHashLB_HttpCookie:
		cookie := &routev3.RouteAction_HashPolicy_Cookie{Name: k.HttpCookie.GetName(), Path: k.HttpCookie.GetPath(),
			Ttl: k.HttpCookie.GetTtl()}
		for _, a := range k.HttpCookie.GetAttributes() {
			cookie.Attributes = append(cookie.Attributes,
				&routev3.RouteAction_HashPolicy_CookieAttribute{Name: a.GetName(), Value: a.GetValue()})
		}
		return &routev3.RouteAction_HashPolicy{PolicySpecifier: &routev3.RouteAction_HashPolicy_Cookie_{Cookie: cookie}}
	case *networking.LoadBalancerSettings_ConsistentHashLB_UseSourceIp:
		if !k.UseSourceIp {
			return nil
		}
		return &routev3.RouteAction_HashPolicy{PolicySpecifier: &routev3.RouteAction_HashPolicy_ConnectionProperties_{
			ConnectionProperties: &routev3.RouteAction_HashPolicy_ConnectionProperties{SourceIp: true},
		}}
	case *networking.LoadBalancerSettings_ConsistentHashLB_HttpQueryParameterName:
		return &routev3.RouteAction_HashPolicy{PolicySpecifier: &routev3.RouteAction_HashPolicy_QueryParameter_{
			QueryParameter: &routev3.RouteAction_HashPolicy_QueryParameter{Name: k.HttpQueryParameterName},
		}}
	default:
		return nil
	}
}
