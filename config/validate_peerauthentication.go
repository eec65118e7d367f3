package config

import (
	"maps"
	"slices"
	"strconv"

	security "istio.io/api/security/v1beta1"
)

// validatePeerAuthentication checks how workloads take connections.
func validatePeerAuthentication(c *checker) {
	p := spec[*security.PeerAuthentication](c)
	selected := len(p.GetSelector().GetMatchLabels()) > 0
	if p.Selector != nil && !selected {
		c.warnf("spec.selector", "this selects every workload of the namespace, as if it were not there: remove it, or write matchLabels")
	}
	c.labels("spec.selector.matchLabels", p.GetSelector().GetMatchLabels())
	c.peerMode("spec.mtls", p.Mtls)
	if p.Mtls == nil && len(p.PortLevelMtls) == 0 {
		c.warnf("spec", "nothing is set, so that workloads go on as the policy above this one says: write mtls with a mode, or remove the object")
	}
	if len(p.PortLevelMtls) > 0 && !selected {
		c.errorf("spec.portLevelMtls",
			"ports are those of some workloads: name these in spec.selector.matchLabels, or remove portLevelMtls")
	}
	for _, port := range slices.Sorted(maps.Keys(p.PortLevelMtls)) {
		path := entry("spec.portLevelMtls", strconv.FormatUint(uint64(port), 10))
		c.port(path, port)
		if p.PortLevelMtls[port] == nil {
			c.errorf(path, "the mode is missing: write mode: STRICT, PERMISSIVE or DISABLE")
		}
		c.peerMode(path, p.PortLevelMtls[port])
	}
}

// peerMode checks one mode.
func (c *checker) peerMode(path string, m *security.PeerAuthentication_MutualTLS) {
	if m == nil {
		return
	}
	switch m.Mode {
	case security.PeerAuthentication_MutualTLS_UNSET, security.PeerAuthentication_MutualTLS_PERMISSIVE, security.PeerAuthentication_MutualTLS_STRICT:
	case security.PeerAuthentication_MutualTLS_DISABLE:
	default:
		c.errorf(path+".mode", "the mode %d is unknown: write STRICT, PERMISSIVE, DISABLE or UNSET", m.Mode)
	}
}
