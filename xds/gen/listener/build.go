package listener

import (
	"slices"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	httpinspectorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/http_inspector/v3"
	originaldstv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/original_dst/v3"
	proxyprotocolv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/proxy_protocol/v3"
	tlsinspectorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/tls_inspector/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/xds/gen/envoy"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// buildListener makes one listener. It is encoded at once: what Envoy would refuse of it shows only
// then. One that Envoy would refuse closes its connections.
func buildListener(s listenerSpec) *envoy.Part {
	out := &envoy.Part{}
	l, refs, err := s.build(out)
	if err != nil {
		out.Report(envoy.Refused(nil, "the listener "+s.name+" closes its connections", err))
		l, refs = s.closed(), []resource.Ref{{TypeURL: resource.ClusterType, Name: envoy.BlackHole}}
	}
	body := resource.Encode(l)
	out.Resource = resource.New(resource.ListenerType, s.name, refs, func() []byte { return body })
	return out
}

// closed is a listener that stands at the same place and closes all connections, so that none goes
// where no listener is.
func (s listenerSpec) closed() *listenerv3.Listener {
	l := &listenerv3.Listener{
		Name:             s.name,
		Address:          s.at.Message(),
		TrafficDirection: s.direction(),
		FilterChains:     []*listenerv3.FilterChain{{Name: envoy.BlackHole, Filters: s.base.blackHoleFilters}},
	}
	s.setSocket(l)
	return l
}

// build makes the listener, and lists what it names. It reports filter chains that close their
// connections. Errors: Envoy would refuse it.
func (s listenerSpec) build(out *envoy.Part) (*listenerv3.Listener, []resource.Ref, error) {
	l := &listenerv3.Listener{
		Name:                             s.name,
		Address:                          s.at.Message(),
		TrafficDirection:                 s.direction(),
		ContinueOnListenerFiltersTimeout: s.side != sideGateway,
		ListenerFilters:                  s.listenerFilters(),
		ListenerFiltersTimeout:           durationpb.New(0),
	}
	if s.also.IsValid() {
		l.AdditionalAddresses = []*listenerv3.AdditionalAddress{{Address: envoy.Address{IP: s.also, Port: s.at.Port}.Message()}}
	}
	if s.detectsHTTP() || s.side == sideInbound && s.readsTLS() {
		l.ListenerFiltersTimeout = durationpb.New(s.base.mesh.Config.GetProtocolDetectionTimeout().AsDuration())
	}
	if s.capture == captureHandOff && l.ListenerFiltersTimeout.AsDuration() == 0 && s.detectsHTTP() {
		l.ListenerFiltersTimeout = nil // Envoy's, 15s: servers that nobody declared may speak first
	}
	if n := s.base.connections.GetListenerPerConnectionBufferLimitBytes(); n != nil {
		l.PerConnectionBufferLimitBytes = unsigned(n)
	}
	if !s.fallback {
		l.AccessLog = s.base.reports(s.side).Unmatched
	}
	s.setSocket(l)
	c := s.setChains(l, out)
	return l, c.refs, envoy.CheckAll(l)
}

// direction is what Envoy's statistics and Istio's tools tell listeners apart by.
func (s listenerSpec) direction() corev3.TrafficDirection {
	if s.side == sideInbound {
		return corev3.TrafficDirection_INBOUND
	}
	return corev3.TrafficDirection_OUTBOUND
}

// setSocket says how the listener gets its connections.
//
// Without redirection several proxies may share a machine, each with an address of its own;
// reuse_port would let two of them share one address without an error, and each would take the
// other's connections.
func (s listenerSpec) setSocket(l *listenerv3.Listener) {
	if !s.bound {
		l.BindToPort = wrapperspb.Bool(false)
	} else if s.base.interception == push.None {
		l.EnableReusePort = wrapperspb.Bool(false)
	}
	if s.capture == captureHandOff {
		l.UseOriginalDst = wrapperspb.Bool(true)
	}
	if !s.base.interception.IsTProxy() {
		return
	}
	switch s.capture {
	case captureHandOff:
		l.Freebind = wrapperspb.Bool(true) // Envoy may start before the rules add tproxyOutbound6
	case captureHere:
		l.Transparent = wrapperspb.Bool(true)
	}
}

// setChains adds the filter chains. One that takes all becomes the default where there are others, so
// that a connection which matches another one in part is not closed. Source: Istio,
// https://github.com/istio/istio/issues/26079.
func (s listenerSpec) setChains(l *listenerv3.Listener, out *envoy.Part) *contents {
	contents := &contents{seen: map[resource.Ref]bool{}}
	for _, name := range s.base.reports(s.side).Clusters {
		contents.add(resource.ClusterType, name)
	}
	for _, c := range s.chains.Items() {
		chain, err := c.build(s.base, s.side, s.readsTLS())
		switch {
		case c.lacksIdentity(s.base.listenerSettings):
			out.Report(strictWithoutIdentity(s.name))
		case err != nil:
			out.Report(envoy.Refused(nil, "a filter chain of the listener "+s.name+" closes its connections", err))
		default:
			contents.addChain(c, s.side)
		}
		if err != nil || c.lacksIdentity(s.base.listenerSettings) {
			chain = &listenerv3.FilterChain{Name: c.name, FilterChainMatch: c.match.build(s.readsTLS()),
				Filters: s.base.blackHoleFilters}
			if chain.Validate() != nil {
				continue // what it matches does not exist
			}
			contents.add(resource.ClusterType, envoy.BlackHole)
		}
		if c.match.all() && s.capture == captureNone && s.chains.Len() > 1 {
			l.DefaultFilterChain = chain
			continue
		}
		l.FilterChains = append(l.FilterChains, chain)
	}
	takesAll := l.DefaultFilterChain != nil || s.chains.Len() == 1 && s.chains.Items()[0].match.all()
	if s.fallback && !takesAll {
		l.DefaultFilterChain = &listenerv3.FilterChain{Name: "PassthroughFilterChain", Filters: s.base.catchAllFilters}
	}
	return contents
}

// listenerFilters find out where a connection was for and what it speaks.
func (s listenerSpec) listenerFilters() []*listenerv3.ListenerFilter {
	var out []*listenerv3.ListenerFilter
	if s.side == sideGateway && s.base.proxy.GetGatewayTopology().GetProxyProtocol() != nil {
		out = append(out, envoy.ListenerFilter("envoy.filters.listener.proxy_protocol", &proxyprotocolv3.ProxyProtocol{}))
	}
	// Where a listener hands connections on, Envoy adds it as the last one. Detection depends on it.
	if s.capture == captureHere || s.capture == captureHandOff && s.detectsHTTP() {
		out = append(out, envoy.ListenerFilter("envoy.filters.listener.original_dst", &originaldstv3.OriginalDst{}))
	}
	if s.readsTLS() {
		f := envoy.ListenerFilter("envoy.filters.listener.tls_inspector", &tlsinspectorv3.TlsInspector{})
		if s.side == sideInbound {
			f.FilterDisabled = anyPort(s.otherPorts(chainSpec.endsTLS))
		}
		out = append(out, f)
	}
	if s.detectsHTTP() {
		f := envoy.ListenerFilter("envoy.filters.listener.http_inspector", &httpinspectorv3.HttpInspector{})
		f.FilterDisabled = anyPort(append(s.otherPorts(chainSpec.detectsHTTP), s.undetected.Items()...))
		out = append(out, f)
	}
	return out
}

// readsTLS says that chains are chosen by what shows in TLS, or end it.
func (s listenerSpec) readsTLS() bool {
	return slices.ContainsFunc(s.chains.Items(), chainSpec.readsTLS)
}

func (c chainSpec) readsTLS() bool {
	return c.match.sni != nil || c.match.transport != "" || c.endsTLS() || c.tcp.dynamicPort != 0
}

func (c chainSpec) endsTLS() bool { return c.tls != nil || c.mutual }

// otherPorts are the ports that chains are for, without those for which a chain reads what a listener
// filter finds: a server that speaks first is not kept waiting there.
func (s listenerSpec) otherPorts(reads func(chainSpec) bool) []uint32 {
	read := map[uint32]bool{}
	for _, c := range s.chains.Items() {
		if reads(c) {
			read[c.match.port] = true
		}
	}
	var out []uint32
	for _, c := range s.chains.Items() {
		if p := c.match.port; p != 0 && !read[p] && !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	return out
}

// detectsHTTP says that chains are chosen by protocol.
func (s listenerSpec) detectsHTTP() bool {
	return slices.ContainsFunc(s.chains.Items(), chainSpec.detectsHTTP)
}

func (c chainSpec) detectsHTTP() bool { return c.match.plainHTTP }

// anyPort is the condition that a connection was for one of the ports; nil when there are none.
func anyPort(ports []uint32) *listenerv3.ListenerFilterChainMatchPredicate {
	var rules []*listenerv3.ListenerFilterChainMatchPredicate
	for _, p := range ports {
		rules = append(rules, &listenerv3.ListenerFilterChainMatchPredicate{
			Rule: &listenerv3.ListenerFilterChainMatchPredicate_DestinationPortRange{
				DestinationPortRange: &typev3.Int32Range{Start: int32(p), End: int32(p) + 1},
			},
		})
	}
	switch len(rules) {
	case 0:
		return nil
	case 1:
		return rules[0]
	}
	return &listenerv3.ListenerFilterChainMatchPredicate{Rule: &listenerv3.ListenerFilterChainMatchPredicate_OrMatch{
		OrMatch: &listenerv3.ListenerFilterChainMatchPredicate_MatchSet{Rules: rules},
	}}
}
