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

// PeerModes are the modes of a workload. Comparable.
type PeerModes struct {
	// Default is the mode of all ports that Ports does not list.
	Default PeerMode
	// Ports are the ports whose mode is not Default, sorted by number.
	Ports *intern.List[PortMode]
}

// At is the mode of a port.
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

// PeerModesOf returns the modes of a workload that policies, the older first, select. root is the
// mesh's root namespace.
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

// decidingPeers are the policies that apply to a workload: the oldest of each level; nil: there is
// none.
type decidingPeers struct{ workload, namespace, mesh *config.Object }

// peerSpec is the spec of a PeerAuthentication; nil when o is nil.
func peerSpec(o *config.Object) *security.PeerAuthentication {
	if o == nil {
		return nil
	}
	return o.Spec.(*security.PeerAuthentication)
}

// decide returns the policies that apply.
//
// Source: istio.io, PeerAuthentication. One with a selector is for workloads, one without for its
// namespace, or in the root namespace for the mesh. One with a selector in the root namespace is
// ignored.
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

// mode is the mode of ports without one of their own, and the policy of the nearest level that sets
// it.
func (d decidingPeers) mode() (PeerMode, *config.Object) {
	for _, o := range []*config.Object{d.workload, d.namespace, d.mesh} {
		if m, ok := peerMode(peerSpec(o).GetMtls()); ok {
			return m, o
		}
	}
	return PeerPermissive, nil
}

// at is the mode of a port, and the policy that sets it; nil: none does.
func (d decidingPeers) at(port uint32) (PeerMode, *config.Object) {
	if m, ok := peerMode(peerSpec(d.workload).GetPortLevelMtls()[port]); ok {
		return m, d.workload
	}
	return d.mode()
}

// peerMode translates a mode; false when it is inherited. An unknown mode is PeerStrict.
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

// Disabling is p when one of its policies sets DISABLE, else nil. Clients need not look at the
// others.
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
