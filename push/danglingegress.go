package push

import (
	"fmt"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/registry"
)

// egressListeners checks that the outbound listeners of a Sidecar that have a port have a service behind them:
// without one, proxies leave them out.
func (d *dangling) egressListeners(sc *SidecarConfig) {
	for i, l := range sc.Spec.Egress {
		if l.Port == nil || strings.EqualFold(l.Port.Protocol, "HTTP_PROXY") {
			continue // it takes every port
		}
		imported, other := d.behind(sc.Object, l)
		if imported {
			continue
		}
		at := fmt.Sprintf("spec.egress[%d]", i)
		wanted := fmt.Sprintf("port %d", l.Port.Number)
		if isSocket(l) {
			wanted += " or one port alone"
		}
		if other != nil {
			d.warn(sc.Object.Key, at+".hosts", "no service that the hosts import has %s, so proxies leave this listener out: import one that does, such as %s/%s",
				wanted, other.Namespace, other.Host)
			continue
		}
		d.warn(sc.Object.Key, at+".port.number", "no service has %s for clients of %s, so proxies leave this listener out: write the port of a service, or declare the port",
			wanted, namespacesText([]string{d.sidecarNamespace(sc.Object)}))
	}
}

// sidecarNamespace is the namespace whose proxies a Sidecar is for; "": those of all.
// Source: istio.io, Sidecar: one of the root namespace without a selector is the default of every namespace.
func (d *dangling) sidecarNamespace(o *config.Object) string {
	if o.Namespace == d.rules.root() && len(o.Spec.(*networking.Sidecar).GetWorkloadSelector().GetLabels()) == 0 {
		return ""
	}
	return o.Namespace
}

// behind says whether a listener imports a service that it can lead to, for some proxy of its Sidecar; other is one
// that such a proxy sees and that is not imported.
func (d *dangling) behind(o *config.Object, l *networking.IstioEgressListener) (imported bool, other *registry.Service) {
	client := d.sidecarNamespace(o)
	patterns := parseImports(l.Hosts, client)
	for _, s := range d.leadingTo(l) {
		if client == "" { // to proxies of its own namespace it is their own
			patterns = parseImports(l.Hosts, s.Namespace)
		} else if d.services.find(client, s.Host) != s {
			continue
		}
		if patterns.covers(s.Namespace, s.Host) {
			return true, nil
		}
		if other == nil {
			other = s
		}
	}
	return false, other
}

// leadingTo lists the services that a listener can lead to: those with its port, and of a socket also those with one
// port alone. Source: istio.io, IstioEgressListener.port.
func (d *dangling) leadingTo(l *networking.IstioEgressListener) []*registry.Service {
	if d.byPort == nil {
		d.byPort = servicesByPort(d.context.in.Services)
	}
	out := d.byPort[l.Port.Number]
	if isSocket(l) {
		out = append(out[:len(out):len(out)], d.byPort[onePort]...)
	}
	return out
}

// onePort is where servicesByPort puts the services with one port alone: no service has this port.
const onePort = 0

// servicesByPort lists the services by each port that they have. UDP is not proxied.
func servicesByPort(services Services) map[uint32][]*registry.Service {
	out := map[uint32][]*registry.Service{}
	for _, s := range services.All() {
		for _, p := range s.Ports {
			if p.Protocol == registry.UDP {
				continue
			}
			out[p.Number] = append(out[p.Number], s)
			if len(s.Ports) == 1 {
				out[onePort] = append(out[onePort], s)
			}
		}
	}
	return out
}

// isSocket says that a listener is a unix socket.
func isSocket(l *networking.IstioEgressListener) bool { return strings.HasPrefix(l.Bind, "unix://") }
