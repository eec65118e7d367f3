package config

import (
	"maps"
	"slices"
	"strconv"

	security "istio.io/api/security/v1beta1"
	types "istio.io/api/type/v1beta1"
)

// validatePeerAuthentication checks how workloads take connections.
func validatePeerAuthentication(c *checker) {
	p := spec[*security.PeerAuthentication](c)
	selected := len(p.GetSelector().GetMatchLabels()) > 0
	c.selector(p.Selector)
	if p.Mtls == nil && len(p.PortLevelMtls) == 0 {
		c.warnf("spec", "nothing is set, so that workloads go on as the policy above this one says: write mtls with a mode, or remove the object")
	}
	if len(p.PortLevelMtls) > 0 && !selected {
		c.errorf("spec.portLevelMtls",
			"ports are those of some workloads: name these in spec.selector.matchLabels, or remove portLevelMtls")
	}
	for _, port := range slices.Sorted(maps.Keys(p.PortLevelMtls)) {
		c.port(entry("spec.portLevelMtls", strconv.FormatUint(uint64(port), 10)), port)
	}
}

// selector checks which workloads a policy is for.
func (c *checker) selector(s *types.WorkloadSelector) {
	if s != nil && len(s.MatchLabels) == 0 {
		c.warnf("spec.selector", "this selects every workload of the namespace, as if it were not there: remove it, or write matchLabels")
	}
	c.labels("spec.selector.matchLabels", s.GetMatchLabels())
}
