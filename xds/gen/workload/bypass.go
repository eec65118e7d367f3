package workload

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
)

// Bypass is what is wrong with ports at which connections reach the workload past its proxy:
// nothing is redirected, and no ingress listener of a Sidecar stands before them. The ports are
// texts, "8080, 9090". Comparable; the zero value: nothing is.
type Bypass struct {
	// plain are ports whose callers speak plaintext instead of mutual TLS.
	plain string
	// broken are ports whose callers speak mutual TLS, which the application does not understand.
	broken string
	// unguarded are all such ports of a workload that policies are to protect.
	unguarded string
	// Ports are all of the above.
	Ports string
}

// BypassOf finds what is wrong with the ports of a sidecar's workload, which takes connections in
// these modes.
func BypassOf(sc *push.Scope, modes push.PeerModes) Bypass {
	if sc.Interception != push.None || sc.Own == nil {
		return Bypass{}
	}
	listeners := Of(sc).Ports()
	mutual := sc.Identity && sc.Mesh.Config.GetEnableAutoMtls().GetValue()
	protected := modes.Strict() || sc.AuthorizationPolicy.Len()+sc.RequestAuthentication.Len() > 0
	var plain, broken, unguarded []uint32
	for _, p := range sc.Own.Inbound.Items() {
		covered := slices.ContainsFunc(listeners, func(l Port) bool { return l.Port == p.TargetPort })
		if covered || p.Port.Protocol == registry.UDP || p.State == registry.PortClosed {
			continue
		}
		if protected {
			unguarded = append(unguarded, p.TargetPort)
		}
		switch {
		case !mutual || !p.Mutual || modes.At(p.TargetPort) == push.PeerDisable:
		case p.Intercepted:
			broken = append(broken, p.TargetPort)
		default:
			plain = append(plain, p.TargetPort)
		}
	}
	return Bypass{
		plain: PortsText(plain), broken: PortsText(broken), unguarded: PortsText(unguarded),
		Ports: PortsText(slices.Concat(plain, broken, unguarded)),
	}
}

// atPorts is "at port 80" or "at ports 80, 81".
func atPorts(ports string) string {
	if strings.Contains(ports, ",") {
		return "at ports " + ports
	}
	return "at port " + ports
}

// Name is how operators know the workload: by its first address.
func (w Workload) Name() string {
	if a := w.addresses(); len(a) > 0 {
		return a[0].String()
	}
	return "without an address"
}

// Problems are those of the workload of that name.
func (b Bypass) Problems(workload string) []feed.Problem {
	const listener = "let the application listen on 127.0.0.1 alone, where the proxy then listens for it, or write a Sidecar " +
		"with an ingress listener for each of these ports, or redirect the connections to the proxy"
	var out []feed.Problem
	say := func(ports, text string) {
		if ports != "" {
			where := fmt.Sprintf("the workload %s takes its connections itself %s, past its proxy: ", workload,
				atPorts(ports))
			out = append(out, feed.Problem{Severity: feed.Warning, Text: where + text})
		}
	}
	say(b.plain, "callers speak plaintext there, and those whose DestinationRule says ISTIO_MUTUAL fail; "+listener)
	say(b.broken, "callers speak mutual TLS there, which the application does not understand (503); "+listener+
		", or give the endpoint the label "+registry.InterceptionLabel+": "+registry.InterceptionNone+" for plaintext")
	say(b.unguarded, "its policies (a PeerAuthentication with STRICT, AuthorizationPolicy, RequestAuthentication) "+
		"are not enforced there; "+listener+
		", and let the application listen there alone")
	return out
}
