package gen

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/memo"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
)

// bypass is what is wrong with ports at which connections reach the workload past its proxy:
// nothing is redirected, and no ingress listener of a Sidecar stands before them. The ports are
// texts, "8080, 9090". Comparable; the zero value: nothing is.
type bypass struct {
	// plain are ports whose callers speak plaintext instead of mutual TLS.
	plain string
	// broken are ports whose callers speak mutual TLS, which the application does not understand.
	broken string
	// unguarded are all such ports of a workload that policies are to protect.
	unguarded string
	// ports are all of the above.
	ports string
}

// bypassOf finds what is wrong with the ports of a sidecar's workload, which takes connections in
// these modes.
func bypassOf(sc *push.Scope, modes push.PeerModes) bypass {
	if sc.Interception != push.None || sc.Own == nil {
		return bypass{}
	}
	listeners := workloadIn{
		own: sc.Own, sidecar: sc.Sidecar, interception: sc.Interception,
		families: capturedFamilies(sc), listenPort: inboundListenPort(sc.Mesh),
	}.ports()
	mutual := sc.Identity && sc.Mesh.Config.GetEnableAutoMtls().GetValue()
	protected := modes.Strict() || sc.AuthorizationPolicy.Len()+sc.RequestAuthentication.Len() > 0
	var plain, broken, unguarded []uint32
	for _, p := range sc.Own.Inbound.Items() {
		covered := slices.ContainsFunc(listeners, func(l inboundPort) bool { return l.port == p.TargetPort })
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
	return bypass{
		plain: portsText(plain), broken: portsText(broken), unguarded: portsText(unguarded),
		ports: portsText(slices.Concat(plain, broken, unguarded)),
	}
}

// bypasses has what is wrong with the ports of each workload, as found last. Listeners that no proxy
// uses any more stay in memory for minutes, and their problems with them.
type bypasses struct {
	memo.Latest[string, bypass] // by workload; without the zero value
}

// set records what was found. Its listeners exist already.
func (b *bypasses) set(workload string, found bypass) {
	b.Update(func(latest map[string]bypass) {
		if latest[workload] = found; found == (bypass{}) {
			delete(latest, workload)
		}
	})
}

// current returns the listeners without those whose bypass is over. It forgets workloads without
// listeners.
func (b *bypasses) current(listeners *memo.Func[listenerSpec, madeListener]) (kept []*madeListener) {
	if len(listeners.Marked()) == 0 {
		return nil
	}
	b.Update(func(latest map[string]bypass) {
		left := map[string]bool{}
		for _, l := range listeners.Marked() {
			if l.bypassed == (bypass{}) || latest[l.workload] == l.bypassed {
				kept = append(kept, l)
				left[l.workload] = true
			}
		}
		maps.DeleteFunc(latest, func(workload string, _ bypass) bool { return !left[workload] })
	})
	return kept
}

// portsText lists ports, each once.
func portsText(ports []uint32) string {
	slices.Sort(ports)
	var out []string
	for _, p := range slices.Compact(ports) {
		out = append(out, strconv.FormatUint(uint64(p), 10))
	}
	return strings.Join(out, ", ")
}

// atPorts is "at port 80" or "at ports 80, 81".
func atPorts(ports string) string {
	if strings.Contains(ports, ",") {
		return "at ports " + ports
	}
	return "at port " + ports
}

// workload is how operators know the workload: by its first address.
func (in inboundListenersIn) workload() string {
	if a := in.addresses(); len(a) > 0 {
		return a[0].String()
	}
	return "without an address"
}

// problems are those of the workload of that name.
func (b bypass) problems(workload string) []feed.Problem {
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
