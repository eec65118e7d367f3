package push

import (
	"slices"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/pmap"
	"github.com/ashore-mesh/ashore/registry"
)

// sidecars is the index of Sidecar objects, by namespace.
type sidecars struct {
	byKey pmap.Map[config.Key, *SidecarConfig]
	// ingress is the number of Sidecars with ingress listeners.
	ingress int
}

func (x sidecars) with(key config.Key, o *config.Object) sidecars {
	if old := x.byKey.At(key); old != nil && len(old.Spec.Ingress) > 0 {
		x.ingress--
	}
	if o == nil {
		x.byKey = x.byKey.Without(key)
		return x
	}
	s := &SidecarConfig{Object: o, Spec: o.Spec.(*networking.Sidecar)}
	if len(s.Spec.Ingress) > 0 {
		x.ingress++
	}
	x.byKey = x.byKey.With(key, s)
	return x
}

// governing returns the Sidecar that applies to n, or nil if there is none: one of its namespace
// that selects it, or else the default of its namespace, or else the default of the root namespace.
// Of several it returns the first by CompareAge.
// Source: istio.io, Sidecar: "one and only one".
func (x sidecars) governing(n Node, root string) *SidecarConfig {
	if n.Type != Sidecar {
		return nil
	}
	return x.governingWorkload(n.Namespace, root, func(want map[string]string) bool { return selects(want, n.Labels) })
}

// governingWorkload returns what governing does, for a workload of a namespace. selects reports
// whether a selector selects the workload.
func (x sidecars) governingWorkload(namespace, root string, selects func(want map[string]string) bool) *SidecarConfig {
	if x.byKey.Len() == 0 {
		return nil
	}
	var selecting, fallback []*SidecarConfig
	for s := range x.of(namespace) {
		switch want := s.Spec.GetWorkloadSelector().GetLabels(); {
		case len(want) == 0:
			fallback = append(fallback, s)
		case selects(want):
			selecting = append(selecting, s)
		}
	}
	if len(selecting) == 0 && len(fallback) == 0 && namespace != root {
		for s := range x.of(root) {
			if len(s.Spec.GetWorkloadSelector().GetLabels()) == 0 {
				fallback = append(fallback, s)
			}
		}
	}
	for _, candidates := range [][]*SidecarConfig{selecting, fallback} {
		if len(candidates) > 0 {
			return slices.MinFunc(candidates, func(a, b *SidecarConfig) int { return CompareAge(a.Object, b.Object) })
		}
	}
	return nil
}

// of yields the Sidecars of a namespace.
func (x sidecars) of(namespace string) func(yield func(*SidecarConfig) bool) {
	return func(yield func(*SidecarConfig) bool) {
		for k, s := range x.byKey.From(config.Key{Kind: config.Sidecar, Namespace: namespace}) {
			if k.Namespace != namespace || !yield(s) {
				return
			}
		}
	}
}

// InboundListeners holds the ports for which Sidecars have ingress listeners. The pointer changes
// only if a Sidecar changes. Nil if there are none.
type InboundListeners struct {
	sidecars sidecars
	root     string
}

// At reports whether the Sidecar of a workload with these labels has an ingress listener for a
// port.
func (l *InboundListeners) At(namespace string, labels map[string]string, port uint32) bool {
	if l == nil {
		return false
	}
	selects := func(want map[string]string) bool { return registry.SelectsAll(want, labels) }
	s := l.sidecars.governingWorkload(namespace, l.root, selects)
	return s != nil && slices.ContainsFunc(s.Spec.Ingress, func(i *networking.IstioIngressListener) bool {
		return i.GetPort().GetNumber() == port
	})
}

// inboundListeners returns Scope.InboundListeners.
func (c *Context) inboundListeners() *InboundListeners {
	if c.sidecars.ingress == 0 {
		return nil
	}
	return c.tables.inboundListeners.Get(InboundListeners{c.sidecars, c.in.Mesh.Config.GetRootNamespace()})
}

// AcceptsMTLS reports whether the proxy of an endpoint accepts the mesh's mutual TLS at a port.
func (l *InboundListeners) AcceptsMTLS(ep *registry.Endpoint, port uint32) bool {
	listens := ep.Intercepted() || ep.States.At(port) == registry.PortListener
	return ep.TLSMode == registry.TLSModeIstio && (listens || l.At(ep.Namespace, ep.Labels, port))
}
