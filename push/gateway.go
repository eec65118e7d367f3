package push

import (
	"slices"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/pmap"
)

// gateways is the index of Gateway objects.
type gateways struct {
	byKey pmap.Map[config.Key, *config.Object]
}

func (x gateways) with(key config.Key, o *config.Object) gateways {
	if o == nil {
		x.byKey = x.byKey.Without(key)
		return x
	}
	x.byKey = x.byKey.With(key, o)
	return x
}

// selecting lists the Gateways that select n, the older first. An empty selector selects every router.
// Source: istio.io, Gateway: the selector is matched in all namespaces (PILOT_SCOPE_GATEWAY_TO_NAMESPACE is off).
func (x gateways) selecting(n Node) []*config.Object {
	if n.Type != Router {
		return nil
	}
	var out []*config.Object
	for _, o := range x.byKey.All() {
		if selects(o.Spec.(*networking.Gateway).Selector, n.Labels) {
			out = append(out, o)
		}
	}
	slices.SortFunc(out, olderFirst)
	return out
}

// servers lists the servers of objects with the VirtualServices that are bound to each, as seen
// from the namespace of the router.
func (v *routeView) servers(t *tables, objects []*config.Object, namespace string) []GatewayServer {
	var out []GatewayServer
	for _, o := range objects {
		name := o.Namespace + "/" + o.Name
		routes := t.routes.Of(v.visible(namespace, func(vs *VirtualService) bool { return vs.boundTo(name) }))
		for _, s := range o.Spec.(*networking.Gateway).Servers {
			out = append(out, GatewayServer{Gateway: o, Server: s, Routes: routes})
		}
	}
	return out
}
