package destination

import (
	"testing"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/push"
)

func TestPolicyFor(t *testing.T) {
	t.Parallel()
	pool := func(n int32) *networking.ConnectionPoolSettings {
		return &networking.ConnectionPoolSettings{Tcp: &networking.ConnectionPoolSettings_TCPSettings{MaxConnections: n}}
	}
	var (
		outlier  = &networking.OutlierDetection{}
		other    = &networking.OutlierDetection{MaxEjectionPercent: 1}
		budget   = &networking.TrafficPolicy_RetryBudget{}
		rulePool = pool(1)
		portPool = pool(2)
		subPool  = pool(3)
		deepPool = pool(4)
	)
	port := func(n uint32, p *networking.ConnectionPoolSettings) []*networking.TrafficPolicy_PortTrafficPolicy {
		return []*networking.TrafficPolicy_PortTrafficPolicy{{Port: &networking.PortSelector{Number: n},
			ConnectionPool: p}}
	}
	inherits := &networking.Subset{Name: "inherits"}
	replaces := &networking.Subset{Name: "replaces", TrafficPolicy: &networking.TrafficPolicy{ConnectionPool: subPool,
		PortLevelSettings: port(82, deepPool)}}
	rule := &push.DestinationRule{Spec: &networking.DestinationRule{
		TrafficPolicy: &networking.TrafficPolicy{ConnectionPool: rulePool, OutlierDetection: outlier,
			RetryBudget: budget, PortLevelSettings: port(81, portPool)},
		Subsets: []*networking.Subset{inherits, replaces,
			{Name: "outlier", TrafficPolicy: &networking.TrafficPolicy{OutlierDetection: other}}},
	}}
	for name, c := range map[string]struct {
		rule   *push.DestinationRule
		subset *networking.Subset
		port   uint32
		want   Policy
	}{
		"no rule":              {nil, nil, 80, Policy{}},
		"rule":                 {rule, nil, 80, Policy{Pool: rulePool, Outlier: outlier, Budget: budget}},
		"port":                 {rule, nil, 81, Policy{Pool: portPool, Budget: budget}},
		"subset inherits":      {rule, inherits, 80, Policy{Pool: rulePool, Outlier: outlier, Budget: budget}},
		"subset inherits port": {rule, inherits, 81, Policy{Pool: portPool, Budget: budget}},
		"subset replaces":      {rule, replaces, 80, Policy{Pool: subPool, Outlier: outlier, Budget: budget}},
		"subset over port":     {rule, replaces, 81, Policy{Pool: subPool, Budget: budget}},
		"subset's port":        {rule, replaces, 82, Policy{Pool: deepPool, Budget: budget}},
		"other part":           {rule, rule.Spec.Subsets[2], 80, Policy{Pool: rulePool, Outlier: other, Budget: budget}},
		"no policy":            {&push.DestinationRule{Spec: &networking.DestinationRule{}}, inherits, 80, Policy{}},
	} {
		if got := PolicyFor(c.rule, c.subset, c.port); got != c.want {
			t.Errorf("%s: got %+v, want %+v", name, got, c.want)
		}
	}
}
