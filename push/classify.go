package push

import (
	"cmp"
	"iter"
	"net/netip"
	"slices"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/registry"
)

// Classify reduces a proxy to the facts that its resources depend on. Equal facets mean equal
// resources.
func (c *Context) Classify(n Node) Facets {
	f := Facets{
		Type:         n.Type,
		Interception: n.Interception,
		CapturesDNS:  n.CapturesDNS,
		IPv6Only:     ipv6Only(n.IPs.Items()),
		DualStack:    dualStack(n.IPs.Items()),
		RouteSources: c.matchesFor(n),
		Rules:        c.rulesFor(n),
		Identity:     n.Identity,
		Probe:        n.Probe,
		Application:  n.Application,

		PeerAuthentication:    c.policiesFor(config.PeerAuthentication, n),
		RequestAuthentication: c.policiesFor(config.RequestAuthentication, n),
		AuthorizationPolicy:   c.policiesFor(config.AuthorizationPolicy, n),
		Telemetry:             c.byLevel(config.Telemetry, n),
		Patches:               c.patchesFor(n),
	}
	settings := c.settingsFor(n)
	f.ProxyConfig, f.AgentConfig = settings.traffic, settings.process
	root := c.in.Mesh.Config.GetRootNamespace()
	switch n.Type {
	case Router:
		f.Namespace = n.Namespace
		f.Gateways = c.serversOf(n)
	default:
		f.Sidecar = c.sidecars.governing(n, root)
		f.Namespace = c.facetNamespace(n, f.Sidecar)
		if id := n.metadata("CLUSTER_ID"); c.cache.services().clusters[id] {
			f.Cluster, f.Namespace = id, n.Namespace
		}
		f.Own, f.SelfDiscovery = c.ownOf(n), n.SelfDiscovery
		f.HTTPProxyPort = cmp.Or(n.HTTPProxyPort, uint32(max(0, c.in.Mesh.Config.GetProxyHttpPort())))
		if n.Interception == None {
			f.Bind = bindAddress(n.IPs.Items())
		}
	}
	v := c.viewOf(f) // depends on the fields that are set so far
	if v.byLocality || f.SelfDiscovery {
		f.Locality = c.localityOf(n)
	}
	if n.Identity && (n.Type == Router || f.Rules != nil) {
		f.Secrets = c.in.Secrets.Namespace(n.Namespace, n.ReadsSecrets)
	}
	f.FailoverLabels = c.failoverLabels(n, v)
	if c.in.Mesh.Networks.gated() || slices.Contains(v.failoverKeys.Items(), registry.NetworkLabel) {
		f.Network = c.networkOf(n)
	}
	return f
}

// facetNamespace returns the proxy's namespace if its configuration depends on the namespace, else
// empty.
func (c *Context) facetNamespace(n Node, s *SidecarConfig) string {
	hasOwnView := c.cache.services().namespacesWithOwnView[n.Namespace] ||
		c.cache.routes().namespacesWithOwnView[n.Namespace] || c.cache.rules().namespacesWithOwnView[n.Namespace]
	if s != nil || hasOwnView {
		return n.Namespace
	}
	return ""
}

// ownOf returns the facts specific to this proxy: its addresses and inbound ports.
func (c *Context) ownOf(n Node) *Own {
	in := c.inboundOf(n)
	slices.SortStableFunc(in, func(a, b Inbound) int {
		return cmp.Or(
			cmp.Compare(a.TargetPort, b.TargetPort), a.Service.Key.Compare(b.Service.Key),
			cmp.Compare(a.Port.Number, b.Port.Number))
	})
	in = slices.CompactFunc(in, func(a, b Inbound) bool {
		return a.Service == b.Service && a.Port == b.Port && a.TargetPort == b.TargetPort
	})
	return c.tables.own.Get(Own{Addresses: n.IPs, Inbound: c.tables.inbound.Of(in)})
}

// inboundOf returns the service ports that the workload of n serves: those of the endpoints at its
// addresses, in its namespace.
func (c *Context) inboundOf(n Node) []Inbound {
	in := make([]Inbound, 0, 8)
	for key, w := range c.endpointsOf(n) {
		s, ok := c.in.Services.Get(key)
		if !ok {
			continue
		}
		for _, p := range s.Ports {
			if target := w.target(p); target != 0 {
				in = append(in, Inbound{
					Service: s, Port: p, TargetPort: target,
					Mutual: w.mtls, Intercepted: w.intercepted, State: w.state(target),
				})
			}
		}
	}
	return in
}

// endpointsOf yields the endpoints that are the workload of n, and their services: those at its
// addresses, in its namespace, and not in another network.
func (c *Context) endpointsOf(n Node) iter.Seq2[registry.Key, workload] {
	network := n.network()
	return func(yield func(registry.Key, workload) bool) {
		for _, a := range n.IPs.Items() {
			for key, w := range c.workloads.at(a) {
				elsewhere := w.network != "" && network != "" && w.network != network
				if w.namespace == n.Namespace && !elsewhere && !yield(key, w) {
					return
				}
			}
		}
	}
}

// localityOf returns the locality of the workload's endpoint, or of the proxy if that is unset. As
// in Istio, the registry takes precedence.
func (c *Context) localityOf(n Node) registry.Locality {
	for _, w := range c.endpointsOf(n) {
		if w.locality != (registry.Locality{}) {
			return w.locality
		}
	}
	return n.Locality
}

// failoverLabels returns the labels of the node by which a destination orders its endpoints.
func (c *Context) failoverLabels(n Node, v *view) *intern.List[Label] {
	var out []Label
	for _, l := range n.Labels.Items() {
		if slices.Contains(v.failoverKeys.Items(), l.Key) {
			out = append(out, l)
		}
	}
	return c.tables.labels.Of(out)
}

// matchesFor returns the conditional matches that apply to n: those by source labels or namespace.
func (c *Context) matchesFor(n Node) *intern.List[any] {
	var out []any
	for _, vs := range c.virtual.conditional.All() {
		for _, m := range vs.conditions {
			if holds(m, n) {
				out = append(out, m)
			}
		}
	}
	return c.tables.sources.Of(out)
}

// rulesFor returns the DestinationRules whose workloadSelector selects n.
func (c *Context) rulesFor(n Node) *intern.List[*config.Object] {
	var out []*config.Object
	for _, o := range c.cache.rules().selective[n.Namespace] {
		if selects(ruleSelector(o).GetMatchLabels(), n.Labels) {
			out = append(out, o)
		}
	}
	return c.tables.objects.Of(out)
}

// serversOf returns the gateway servers of a router.
func (c *Context) serversOf(n Node) *intern.List[GatewayServer] {
	objects := c.tables.objects.Of(c.gateways.selecting(n))
	if objects == nil {
		return nil
	}
	in := serverViewIn{
		tables: c.tables, routes: c.cache.routes(), gateways: objects, targets: c.targetPorts(n), namespace: n.Namespace,
	}
	return keep(&c.cache.servers, c.tables.serverView, in).list
}

// bindAddress returns the address of listeners to which no traffic is redirected.
func bindAddress(ips []netip.Addr) netip.Addr {
	if len(ips) > 0 && ips[0].IsLoopback() {
		return ips[0]
	}
	if ipv6Only(ips) {
		return netip.IPv6Loopback()
	}
	return netip.AddrFrom4([4]byte{127, 0, 0, 1})
}

func ipv6Only(ips []netip.Addr) bool {
	return len(ips) > 0 && !slices.ContainsFunc(ips, func(a netip.Addr) bool { return a.Unmap().Is4() })
}

// dualStack reports whether there are addresses of both families. Loopback and link-local IPv6
// addresses are ignored, since nearly every machine has them.
func dualStack(ips []netip.Addr) bool {
	v4 := func(a netip.Addr) bool { return a.Unmap().Is4() }
	v6 := func(a netip.Addr) bool { return a.Unmap().Is6() && !a.IsLinkLocalUnicast() && !a.IsLoopback() }
	return slices.ContainsFunc(ips, v4) && slices.ContainsFunc(ips, v6)
}
