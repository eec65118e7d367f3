package config

import (
	security "istio.io/api/security/v1beta1"
	types "istio.io/api/type/v1beta1"
)

// peerAuthentication checks how workloads take connections.
func (c *checker) peerAuthentication(p *security.PeerAuthentication) {
	if p.Mtls == nil && len(p.PortLevelMtls) == 0 {
		c.warnf("spec", "nothing is set, so that workloads go on as the policy above this one says: write mtls with a mode, or remove the object")
	}
	if len(p.PortLevelMtls) > 0 && len(p.GetSelector().GetMatchLabels()) == 0 {
		c.errorf("spec.portLevelMtls",
			"ports are those of some workloads: name these in spec.selector.matchLabels, or remove portLevelMtls")
	}
}

// selector checks which workloads a policy is for.
func (c *checker) selector(path string, s *types.WorkloadSelector) {
	if len(s.MatchLabels) == 0 {
		c.warnf(path, "this selects every workload of the namespace, as if it were not there: remove it, or write matchLabels")
	}
}
