package push

import (
	"cmp"
	"slices"

	security "istio.io/api/security/v1beta1"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/intern"
)

// PeerMode is how a workload accepts connections.
type PeerMode uint8

const (
	// PeerPermissive accepts mutual TLS and plaintext; the default.
	PeerPermissive PeerMode = iota
	// PeerStrict accepts only mutual TLS.
	PeerStrict
	// PeerDisable leaves connections to the workload as they are.
	PeerDisable
)

// PortMode is the mode of one port of a workload.
type PortMode struct {
	Port uint32
	Mode PeerMode
}

// PeerModes holds the modes of a workload. Comparable.
type PeerModes struct {
	// Default is the mode of all ports that Ports does not list.
	Default PeerMode
	// Ports lists the ports whose mode is not Default, sorted by number.
	Ports *intern.List[PortMode]
}

// At returns the mode of a port.
func (m PeerModes) At(port uint32) PeerMode {
	for _, p := range m.Ports.Items() {
		if p.Port == port {
			return p.Mode
		}
	}
	return m.Default
}

// Strict reports whether some port accepts only mutual TLS.
func (m PeerModes) Strict() bool {
	strict := func(p PortMode) bool { return p.Mode == PeerStrict }
	return m.Default == PeerStrict || slices.ContainsFunc(m.Ports.Items(), strict)
}

// PeerModesOf returns the modes of a workload that the policies select. The policies are sorted by
// CompareAge. root is the mesh's root namespace.
func PeerModesOf(policies []*config.Object, root string, lists *intern.Lists[PortMode]) PeerModes {
	d := decide(policies, root)
	var m PeerModes
	m.Default, _ = d.mode()
	var ports []PortMode
	for port := range peerSpec(d.workload).GetPortLevelMtls() {
		if mode, _ := d.at(port); mode != m.Default {
			ports = append(ports, PortMode{port, mode})
		}
	}
	slices.SortFunc(ports, func(a, b PortMode) int { return cmp.Compare(a.Port, b.Port) })
	m.Ports = lists.Of(ports)
	return m
}

// decidingPeers holds the oldest policy of each level that applies to a workload. Nil if there is
// none.
type decidingPeers struct{ workload, namespace, mesh *config.Object }

// peerSpec returns the spec of a PeerAuthentication, or nil if o is nil.
func peerSpec(o *config.Object) *security.PeerAuthentication {
	if o == nil {
		return nil
	}
	return o.Spec.(*security.PeerAuthentication)
}

// decide returns the policies that apply.
//
// Source: istio.io, PeerAuthentication. A policy with a selector applies to workloads. One without
// applies to its namespace, or to the mesh if that is the root namespace. A policy with a selector
// in the root namespace is ignored.
func decide(policies []*config.Object, root string) decidingPeers {
	var d decidingPeers
	for _, o := range policies {
		level := &d.namespace
		switch selects := len(SelectorLabels(o)) > 0; {
		case selects && o.Namespace == root:
			continue
		case selects:
			level = &d.workload
		case o.Namespace == root:
			level = &d.mesh
		}
		if *level == nil {
			*level = o
		}
	}
	return d
}

// mode returns the mode of ports that have no port-level mode, and the policy that sets it.
func (d decidingPeers) mode() (PeerMode, *config.Object) {
	for _, o := range []*config.Object{d.workload, d.namespace, d.mesh} {
		if m, ok := peerMode(peerSpec(o).GetMtls()); ok {
			return m, o
		}
	}
	return PeerPermissive, nil
}

// at returns the mode of a port and the policy that sets it, or nil if none does.
func (d decidingPeers) at(port uint32) (PeerMode, *config.Object) {
	if m, ok := peerMode(peerSpec(d.workload).GetPortLevelMtls()[port]); ok {
		return m, d.workload
	}
	return d.mode()
}

// peerMode translates a mode. It returns false if the mode is inherited. An unknown mode is
// PeerStrict.
func peerMode(m *security.PeerAuthentication_MutualTLS) (PeerMode, bool) {
	switch m.GetMode() {
	case security.PeerAuthentication_MutualTLS_UNSET:
		return PeerPermissive, false
	case security.PeerAuthentication_MutualTLS_PERMISSIVE:
		return PeerPermissive, true
	case security.PeerAuthentication_MutualTLS_DISABLE:
		return PeerDisable, true
	default:
		return PeerStrict, true
	}
}

// disables reports whether a policy sets DISABLE for some port.
func (x policies) disables() bool {
	for _, o := range x.byKey.All() {
		p := peerSpec(o)
		if m, _ := peerMode(p.Mtls); m == PeerDisable {
			return true
		}
		for _, port := range p.PortLevelMtls {
			if m, _ := peerMode(port); m == PeerDisable {
				return true
			}
		}
	}
	return false
}

// Disabling returns p if one of its policies sets DISABLE, else nil. Other policies make no
// difference to clients.
func (p *PeerPolicies) Disabling() *PeerPolicies {
	if p == nil || !p.disables {
		return nil
	}
	return p
}

// Disabled reports whether a workload accepts no mutual TLS at a port.
func (p *PeerPolicies) Disabled(namespace string, labels map[string]string, port uint32) bool {
	if p == nil {
		return false
	}
	mode, _ := decide(p.Of(namespace, labels), p.root).at(port)
	return mode == PeerDisable
}
