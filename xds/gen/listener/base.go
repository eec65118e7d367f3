package listener

import (
	"time"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	mesh "istio.io/api/mesh/v1alpha1"

	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/xds/gen/access"
	"github.com/ashore-mesh/ashore/xds/gen/envoy"
	"github.com/ashore-mesh/ashore/xds/gen/layout"
)

// listenerSettings is what the listeners of one proxy have in common.
type listenerSettings struct {
	log accessLog
	// listenerLog also logs connections that no filter chain takes.
	listenerLog bool
	// detection is how long to wait for a protocol to show; zero: for ever.
	detection     time.Duration
	normalization mesh.MeshConfig_ProxyPathNormalization_NormalizationType
	caps          push.Capabilities
	interception  push.Interception
	families      envoy.Families
	// catchAll is the cluster of connections to unknown destinations.
	catchAll string
	// outboundPort and inboundPort are where redirected connections arrive.
	outboundPort, inboundPort uint32
	// mesh are the settings of mutual TLS; nil when the proxy has no certificate of the mesh.
	mesh *push.Mesh
	// proven bounds the connections of callers who show a certificate.
	proven push.ConnectionBounds
}

// identity says that the proxy has a certificate of the mesh.
func (s listenerSettings) identity() bool { return s.mesh != nil }

// settingsOf picks what all listeners of a proxy depend on out of a scope.
func settingsOf(sc *push.Scope) listenerSettings {
	m := sc.Mesh.Config
	out := listenerSettings{
		log:           accessLogOf(m),
		listenerLog:   !m.GetDisableEnvoyListenerLog(),
		detection:     m.GetProtocolDetectionTimeout().AsDuration(),
		normalization: m.GetPathNormalization().GetNormalization(),
		caps:          sc.Capabilities,
		interception:  sc.Interception,
		families:      envoy.CapturedFamilies(sc),
		catchAll:      layout.CatchAllCluster(sc),
		outboundPort:  envoy.OutboundListenPort(sc.Mesh),
		inboundPort:   envoy.InboundListenPort(sc.Mesh),
	}
	if sc.Identity {
		out.mesh = sc.Mesh
	}
	if sc.Trust != nil {
		out.proven = sc.Trust.Connections
	}
	return out
}

// listenerBase is listenerSettings with what is built from them once. Immutable; the messages are
// shared by all listeners of equal settings.
type listenerBase struct {
	listenerSettings
	// connectionLog and unmatchedLog are for requests and connections, and for those that no filter
	// chain takes; nil when nothing is logged.
	connectionLog, unmatchedLog []*accesslogv3.AccessLog
	// httpFilters are the filters of requests that the workload sends, judgedFilters those of requests
	// that others send to it.
	httpFilters, judgedFilters []*hcmv3.HttpFilter
	// judges are the filters of connections from others, before the one that forwards them.
	judges []*listenerv3.Filter
	// catchAllFilters forward to catchAll, blackHoleFilters close.
	catchAllFilters, blackHoleFilters []*listenerv3.Filter
}

func newListenerBase(s listenerSettings) *listenerBase {
	b := &listenerBase{listenerSettings: s}
	b.connectionLog = s.log.build(nil)
	if s.listenerLog {
		b.unmatchedLog = s.log.build(noChainFilter())
	}
	judges := append([]*hcmv3.HttpFilter{access.BadHostFilter()}, access.JudgeRequests(access.RequestFilters()...)...)
	b.httpFilters, b.judgedFilters = httpFilters(s.caps, nil), httpFilters(s.caps, judges)
	b.judges = access.JudgeConnections(access.ConnectionFilters()...)
	b.catchAllFilters = b.tcpFilters(tcpSpec{statPrefix: s.catchAll, cluster: s.catchAll})
	b.blackHoleFilters = []*listenerv3.Filter{tcpProxy(tcpSpec{statPrefix: envoy.BlackHole, cluster: envoy.BlackHole}, nil)}
	return b
}
