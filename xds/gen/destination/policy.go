package destination

import (
	"cmp"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/xds/gen/envoy"
)

// Policy are the parts of a DestinationRule's traffic policy that hold for one cluster. Comparable.
type Policy struct {
	Pool    *networking.ConnectionPoolSettings
	Balance *networking.LoadBalancerSettings
	Outlier *networking.OutlierDetection
	Tls     *networking.ClientTLSSettings
	Budget  *networking.TrafficPolicy_RetryBudget
	// Selected says that the rule selects its clients, who may have the secret that Tls names. It is
	// set only if Tls names one.
	Selected bool
	// Distribution is that of the service, if the rule does not say which endpoints are preferred.
	Distribution registry.Distribution
	// Proxied begins connections with the PROXY protocol.
	Proxied *networking.TrafficPolicy_ProxyProtocol
}

// PolicyFor chooses the policy of one port and subset; a nil rule and a nil subset have none.
//
// Source: istio.io, DestinationRule. Settings for a port replace all those above them, also by what
// they leave out. What a subset sets replaces the part of the same name of the rule, and what it
// does not set is inherited.
func PolicyFor(rule *push.DestinationRule, subset *networking.Subset, port uint32) Policy {
	if rule == nil {
		return Policy{}
	}
	p, _ := portPolicy(rule.Spec.TrafficPolicy, port)
	if subset.GetTrafficPolicy() != nil {
		own, whole := portPolicy(subset.TrafficPolicy, port)
		if whole {
			// not a port's to set
			own.Budget, own.Proxied = cmp.Or(own.Budget, p.Budget), cmp.Or(own.Proxied, p.Proxied)
			p = own
		} else {
			p = p.with(own)
		}
	}
	p.Selected = rule.Spec.WorkloadSelector != nil && p.Tls.GetCredentialName() != ""
	return p
}

// OrDefaults returns p with the settings of a service and of the mesh where p has none.
// Source: istio.io, MeshConfig.defaultTrafficPolicy.
func (p Policy) OrDefaults(s *registry.Service, m *push.Mesh) Policy {
	defaults := m.Config.GetDefaultTrafficPolicy()
	p.Pool, p.Outlier = cmp.Or(p.Pool, defaults.GetConnectionPool()), cmp.Or(p.Outlier, defaults.GetOutlierDetection())
	if p.Balance.GetLocalityLbSetting() == nil && p.Balance.GetZoneAwareLbSetting() == nil {
		p.Distribution = s.Distribution
	}
	return p
}

// TunnelFor is the tunnel for connections to a destination; nil: none. A subset has its own only.
// Source: Istio, pilot/pkg/networking/core/tunnelingconfig.
func TunnelFor(rule *push.DestinationRule, subset string) *networking.TrafficPolicy_TunnelSettings {
	if rule == nil {
		return nil
	}
	if subset != "" {
		return SubsetOf(rule, subset).GetTrafficPolicy().GetTunnel()
	}
	return rule.Spec.TrafficPolicy.GetTunnel()
}

// SubsetOf is the subset of a rule by its name; nil: there is none.
func SubsetOf(rule *push.DestinationRule, name string) *networking.Subset {
	if rule == nil || name == "" {
		return nil
	}
	for _, s := range rule.Spec.GetSubsets() {
		if s.Name == name {
			return s
		}
	}
	return nil
}

// portPolicy is what a traffic policy says for a port; whole says that the port has settings of its
// own.
func portPolicy(t *networking.TrafficPolicy, port uint32) (p Policy, whole bool) {
	if t == nil {
		return Policy{}, false
	}
	p = Policy{Pool: t.ConnectionPool, Balance: t.LoadBalancer, Outlier: t.OutlierDetection, Tls: t.Tls,
		Budget: t.RetryBudget, Proxied: t.ProxyProtocol}
	for _, s := range t.PortLevelSettings {
		if s.GetPort().GetNumber() == port {
			p.Pool, p.Balance, p.Outlier, p.Tls = s.ConnectionPool, s.LoadBalancer, s.OutlierDetection, s.Tls
			return p, true
		}
	}
	return p, false
}

// with returns p with the parts that over sets.
func (p Policy) with(over Policy) Policy {
	return Policy{Pool: cmp.Or(over.Pool, p.Pool), Balance: cmp.Or(over.Balance, p.Balance),
		Outlier: cmp.Or(over.Outlier, p.Outlier), Tls: cmp.Or(over.Tls, p.Tls), Budget: cmp.Or(over.Budget, p.Budget),
		Proxied: cmp.Or(over.Proxied, p.Proxied)}
}

// passthrough says that connections go where the client had connected to.
func (p Policy) passthrough() bool {
	return p.Balance.GetSimple() == networking.LoadBalancerSettings_PASSTHROUGH
}

// IsDNS says that the proxy resolves the names of endpoints.
func IsDNS(r registry.Resolution) bool { return r == registry.DNS || r == registry.DNSRoundRobin }

// EachCluster calls f for every cluster of a destination: its ports, and each with its subsets. If
// connections are forwarded to it, each has another cluster for these. UDP is not proxied.
func EachCluster(d push.Destination, f func(port uint32, subset *networking.Subset, forwarded bool)) {
	subsets := []*networking.Subset{nil}
	if d.Rule != nil && d.Service.Resolution != registry.DynamicDNS { // without endpoints no subsets
		subsets = append(subsets, d.Rule.Spec.Subsets...)
	}
	for _, p := range d.Service.Ports {
		if p.Protocol == registry.UDP {
			continue
		}
		for _, s := range subsets {
			if !d.Unrouted {
				f(p.Number, s, false)
			}
			if d.Forwarded {
				f(p.Number, s, true)
			}
		}
	}
}

// ClusterName is the name of a cluster of EachCluster.
func ClusterName(host string, port uint32, subset *networking.Subset, forwarded bool) string {
	if forwarded {
		return envoy.ForwardedCluster(port, subset.GetName(), host)
	}
	return envoy.OutboundCluster(port, subset.GetName(), host)
}

// Deciding is the object that decides about a rule, nil when there is none.
func Deciding(rule *push.DestinationRule) *config.Object {
	if rule == nil || len(rule.From) == 0 {
		return nil
	}
	return rule.From[0]
}

// UsesTLS says that connections to endpoints are TLS by what a rule says.
func UsesTLS(t *networking.ClientTLSSettings) bool {
	return t.GetMode() == networking.ClientTLSSettings_SIMPLE || t.GetMode() == networking.ClientTLSSettings_MUTUAL
}
