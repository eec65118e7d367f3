package gen

import (
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
)

// policy are the parts of a DestinationRule's traffic policy that hold for one cluster. Comparable.
type policy struct {
	pool    *networking.ConnectionPoolSettings
	balance *networking.LoadBalancerSettings
	outlier *networking.OutlierDetection
	tls     *networking.ClientTLSSettings
	budget  *networking.TrafficPolicy_RetryBudget
}

// policyFor chooses the policy of one port and subset; a nil rule and a nil subset have none.
//
// Source: istio.io, DestinationRule. Settings for a port replace all those above them, also by what
// they leave out. What a subset sets replaces the part of the same name of the rule, and what it
// does not set is inherited.
func policyFor(rule *push.DestinationRule, subset *networking.Subset, port uint32) policy {
	if rule == nil {
		return policy{}
	}
	p, _ := portPolicy(rule.Spec.TrafficPolicy, port)
	if subset.GetTrafficPolicy() == nil {
		return p
	}
	own, whole := portPolicy(subset.TrafficPolicy, port)
	if whole {
		own.budget = p.budget // not a port's to set
		return own
	}
	return p.with(own)
}

// subsetOf is the subset of a rule by its name; nil: there is none.
func subsetOf(rule *push.DestinationRule, name string) *networking.Subset {
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
func portPolicy(t *networking.TrafficPolicy, port uint32) (p policy, whole bool) {
	if t == nil {
		return policy{}, false
	}
	for _, s := range t.PortLevelSettings {
		if s.GetPort().GetNumber() == port {
			return policy{pool: s.ConnectionPool, balance: s.LoadBalancer, outlier: s.OutlierDetection, tls: s.Tls,
				budget: t.RetryBudget}, true
		}
	}
	return policy{pool: t.ConnectionPool, balance: t.LoadBalancer, outlier: t.OutlierDetection, tls: t.Tls,
		budget: t.RetryBudget}, false
}

// with returns p with the parts that over sets.
func (p policy) with(over policy) policy {
	if over.pool != nil {
		p.pool = over.pool
	}
	if over.balance != nil {
		p.balance = over.balance
	}
	if over.outlier != nil {
		p.outlier = over.outlier
	}
	if over.tls != nil {
		p.tls = over.tls
	}
	if over.budget != nil {
		p.budget = over.budget
	}
	return p
}

// passthrough says that connections go where the client had connected to.
func (p policy) passthrough() bool {
	return p.balance.GetSimple() == networking.LoadBalancerSettings_PASSTHROUGH
}

func isDNS(r registry.Resolution) bool { return r == registry.DNS || r == registry.DNSRoundRobin }

// eachCluster calls f for every cluster of a destination: its ports, and each with its subsets.
// UDP is not proxied.
func eachCluster(d push.Destination, f func(port uint32, subset *networking.Subset)) {
	for _, p := range d.Service.Ports {
		if p.Protocol == registry.UDP {
			continue
		}
		f(p.Number, nil)
		if d.Rule == nil {
			continue
		}
		for _, s := range d.Rule.Spec.Subsets {
			f(p.Number, s)
		}
	}
}

// deciding is the object that decides about a rule, nil when there is none.
func deciding(rule *push.DestinationRule) *config.Object {
	if rule == nil || len(rule.From) == 0 {
		return nil
	}
	return rule.From[0]
}

// usesTLS says that connections to endpoints are TLS by what a rule says.
func usesTLS(t *networking.ClientTLSSettings) bool {
	return t.GetMode() == networking.ClientTLSSettings_SIMPLE || t.GetMode() == networking.ClientTLSSettings_MUTUAL
}
