package cluster

import (
	"cmp"
	"strconv"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/config/common/matcher/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	upstreamv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	mesh "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/xds/gen/envoy"
)

// httpOptionsKey is where a cluster's HTTP options stand among its protocol options.
const httpOptionsKey = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"

// upstreamProtocol is the version of HTTP that a cluster speaks.
type upstreamProtocol uint8

const (
	// upstreamHTTP1 is Envoy's default.
	upstreamHTTP1 upstreamProtocol = iota
	// upstreamHTTP2 is HTTP/2 whatever the client spoke.
	upstreamHTTP2
	// upstreamAsClient is what the client spoke.
	upstreamAsClient
)

// upstreamHTTP collects a cluster's HTTP options.
type upstreamHTTP struct {
	protocol upstreamProtocol
	http1    *corev3.Http1ProtocolOptions // nil: Envoy's defaults
	http2    corev3.Http2ProtocolOptions
	// common are the options of every version, upstream those of upstream connections alone.
	common   corev3.HttpProtocolOptions
	upstream corev3.UpstreamHttpProtocolOptions
	// outliers, when not nil, says which answers outlier detection counts as errors.
	outliers *upstreamv3.HttpProtocolOptions_OutlierDetection
}

// upstreamHTTP is the protocol that a port, its policy and the mesh ask for.
//
// Source: Istio. HTTP/2 ports speak it, sniffed ports of sidecars speak what the client does.
// useClientProtocol goes before h2UpgradePolicy, which goes before the mesh's; the mesh's is for
// HTTP ports only.
func (s clusterShape) upstreamHTTP() *upstreamHTTP {
	h := &upstreamHTTP{}
	http := s.policy.Pool.GetHttp()
	upgrade := http.GetH2UpgradePolicy()
	switch {
	case http.GetUseClientProtocol():
		h.protocol = upstreamAsClient
	case s.protocol.IsHTTP2(), upgrade == networking.ConnectionPoolSettings_HTTPSettings_UPGRADE:
		h.protocol = upstreamHTTP2
	case s.protocol == registry.Unknown && !s.router:
		h.protocol = upstreamAsClient
	case upgrade == networking.ConnectionPoolSettings_HTTPSettings_DEFAULT && s.protocol.IsHTTP() &&
		s.mesh.Config.GetH2UpgradePolicy() == mesh.MeshConfig_UPGRADE:
		h.protocol = upstreamHTTP2
	}
	return h
}

// proxySettings are what a ProxyConfig says of all clusters.
type proxySettings struct {
	// keepCase leaves the names of HTTP/1 headers as they were written.
	keepCase bool
	// buffer limits the buffers of a connection, in bytes. Zero: Envoy's default.
	buffer uint32
}

func settingsOf(sc *push.Scope) proxySettings {
	s := sc.ProxyConfig.GetConnectionSettings()
	out := proxySettings{keepCase: sc.ProxyConfig.GetProxyHeaders().GetPreserveHttp1HeaderCase().GetValue(),
		buffer: uint32(s.GetClusterPerConnectionBufferLimitBytes().GetValue())}
	edge := sc.Type == push.Router && s.GetProfile() == mesh.ProxyConfig_ConnectionSettings_EDGE
	if edge && s.ClusterPerConnectionBufferLimitBytes == nil {
		out.buffer = 32 << 10
	}
	return out
}

func (p proxySettings) apply(c *clusterv3.Cluster, h *upstreamHTTP) {
	if p.keepCase {
		h.http1 = envoy.KeepHeaderCase()
	}
	if p.buffer > 0 {
		c.PerConnectionBufferLimitBytes = wrapperspb.UInt32(p.buffer)
	}
}

// pool sets what connection pools say of HTTP connections.
func (h *upstreamHTTP) pool(http *networking.ConnectionPoolSettings_HTTPSettings,
	tcp *networking.ConnectionPoolSettings_TCPSettings) {
	if t := http.GetIdleTimeout(); t != nil {
		h.common.IdleTimeout = t
	} else if t := tcp.GetIdleTimeout(); t != nil {
		h.common.IdleTimeout = t
	}
	if n := http.GetMaxRequestsPerConnection(); n > 0 {
		h.common.MaxRequestsPerConnection = wrapperspb.UInt32(uint32(n))
	}
	if t := tcp.GetMaxConnectionDuration(); t != nil {
		h.common.MaxConnectionDuration = t
	}
	if n := http.GetMaxConcurrentStreams(); n > 0 {
		h.http2.MaxConcurrentStreams = wrapperspb.UInt32(uint32(n))
	}
	if k := http.GetHttp2KeepAlive(); k != nil {
		h.http2.ConnectionKeepalive = &corev3.KeepaliveSettings{Interval: k.Interval, Timeout: k.Timeout}
	}
}

// errorCodes makes outlier detection count these answers, and no others, as errors.
func (h *upstreamHTTP) errorCodes(codes []uint32) {
	if len(codes) == 0 {
		return
	}
	rules := make([]*matcherv3.MatchPredicate, len(codes))
	for i, code := range codes {
		status := &routev3.HeaderMatcher{Name: ":status", HeaderMatchSpecifier: &routev3.HeaderMatcher_StringMatch{
			StringMatch: envoy.Exact(strconv.FormatUint(uint64(code), 10)),
		}}
		rules[i] = &matcherv3.MatchPredicate{Rule: &matcherv3.MatchPredicate_HttpResponseHeadersMatch{
			HttpResponseHeadersMatch: &matcherv3.HttpHeadersMatch{Headers: []*routev3.HeaderMatcher{status}},
		}}
	}
	match := rules[0]
	if len(rules) > 1 {
		match = &matcherv3.MatchPredicate{Rule: &matcherv3.MatchPredicate_OrMatch{OrMatch: &matcherv3.MatchPredicate_MatchSet{Rules: rules}}}
	}
	h.outliers = &upstreamv3.HttpProtocolOptions_OutlierDetection{ErrorMatcher: match}
}

// apply gives the options to a cluster; none where Envoy's defaults are meant.
func (h *upstreamHTTP) apply(c *clusterv3.Cluster) {
	options := &upstreamv3.HttpProtocolOptions{OutlierDetection: h.outliers}
	if proto.Size(&h.common) > 0 {
		options.CommonHttpProtocolOptions = &h.common
	}
	if proto.Size(&h.upstream) > 0 {
		options.UpstreamHttpProtocolOptions = &h.upstream
	}
	if h.protocol == upstreamHTTP1 && h.http1 == nil && proto.Size(options) == 0 {
		return
	}
	http1 := cmp.Or(h.http1, &corev3.Http1ProtocolOptions{})
	switch h.protocol {
	case upstreamHTTP2:
		options.UpstreamProtocolOptions = &upstreamv3.HttpProtocolOptions_ExplicitHttpConfig_{ExplicitHttpConfig: &upstreamv3.HttpProtocolOptions_ExplicitHttpConfig{
			ProtocolConfig: &upstreamv3.HttpProtocolOptions_ExplicitHttpConfig_Http2ProtocolOptions{Http2ProtocolOptions: &h.http2},
		}}
	case upstreamAsClient:
		options.UpstreamProtocolOptions = &upstreamv3.HttpProtocolOptions_UseDownstreamProtocolConfig{UseDownstreamProtocolConfig: &upstreamv3.HttpProtocolOptions_UseDownstreamHttpConfig{
			HttpProtocolOptions: http1, Http2ProtocolOptions: &h.http2,
		}}
	default:
		options.UpstreamProtocolOptions = &upstreamv3.HttpProtocolOptions_ExplicitHttpConfig_{ExplicitHttpConfig: &upstreamv3.HttpProtocolOptions_ExplicitHttpConfig{
			ProtocolConfig: &upstreamv3.HttpProtocolOptions_ExplicitHttpConfig_HttpProtocolOptions{HttpProtocolOptions: http1},
		}}
	}
	c.TypedExtensionProtocolOptions = map[string]*anypb.Any{httpOptionsKey: envoy.Packed(options)}
}
