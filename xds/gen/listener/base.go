package listener

import (
	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/xds/gen/access"
	"github.com/ashore-mesh/ashore/xds/gen/destination"
	"github.com/ashore-mesh/ashore/xds/gen/envoy"
	"github.com/ashore-mesh/ashore/xds/gen/layout"
	"github.com/ashore-mesh/ashore/xds/gen/telemetry"
)

// listenerSettings is what the listeners of one proxy have in common.
type listenerSettings struct {
	mesh         *push.Mesh
	telemetry    telemetry.Settings
	interception push.Interception
	families     envoy.Families
	// catchAll is the cluster of connections to unknown destinations.
	catchAll string
	// resolvesUnknown says that requests for unknown hosts go elsewhere: to the hosts that they name.
	resolvesUnknown bool
	// proxy has what the proxy's settings say of its traffic; router says that it is a gateway.
	proxy  *meshconfig.ProxyConfig
	router bool
	// identity says that the proxy has a certificate of the mesh.
	identity bool
	// dynamic says that the proxy resolves hosts that clients name, whose addresses are of families.
	dynamic         bool
	dynamicFamilies envoy.Families
	// proven bounds the connections of callers who show a certificate.
	proven push.ConnectionBounds
}

// settingsOf picks what all listeners of a proxy depend on out of a scope.
func (g *Generator) settingsOf(sc *push.Scope) listenerSettings {
	out := listenerSettings{
		mesh:         sc.Mesh,
		telemetry:    g.telemetry.Of(sc),
		interception: sc.Interception,
		families:     envoy.CapturedFamilies(sc),
		catchAll:     layout.CatchAllCluster(sc),
		proxy:        sc.ProxyConfig,
		router:       sc.Type == push.Router,
		identity:     sc.Identity,

		resolvesUnknown: destination.ResolvesUnknown(sc),
	}
	if out.resolvesUnknown || g.indexes.Of(sc).Dynamic {
		out.dynamic, out.dynamicFamilies = true, envoy.FamiliesOf(sc)
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
	// sent and received are what the proxy reports of traffic that it sends, or receives.
	sent, received *telemetry.Side
	connections    *meshconfig.ProxyConfig_ConnectionSettings
	// httpFilters are the filters of requests that the workload sends, judgedFilters those of requests
	// that others send to it.
	httpFilters, judgedFilters []*hcmv3.HttpFilter
	// judges are the filters of connections from others, before the one that forwards them.
	judges []*listenerv3.Filter
	// catchAllFilters forward to catchAll, blackHoleFilters close.
	catchAllFilters, blackHoleFilters []*listenerv3.Filter
}

func newListenerBase(s listenerSettings) *listenerBase {
	b := &listenerBase{listenerSettings: s, sent: s.telemetry.Side(telemetry.Source),
		received: s.telemetry.Side(telemetry.Destination), connections: connectionSettings(s.proxy, s.router)}
	judges := append([]*hcmv3.HttpFilter{access.BadHostFilter()}, access.JudgeRequests(access.RequestFilters()...)...)
	quiet := s.proxy.GetProxyHeaders().GetEnvoyDebugHeaders().GetDisabled().GetValue()
	b.httpFilters, b.judgedFilters = httpFilters(nil, quiet), httpFilters(judges, quiet)
	b.judges = access.JudgeConnections(access.ConnectionFilters()...)
	filters := func(cluster string, log []*accesslogv3.AccessLog) []*listenerv3.Filter {
		return []*listenerv3.Filter{tcpFilter(tcpProxy(tcpSpec{statPrefix: cluster, cluster: cluster}, log))}
	}
	b.catchAllFilters, b.blackHoleFilters = filters(s.catchAll, b.sent.Connections), filters(envoy.BlackHole, nil)
	return b
}

// reports returns what the proxy reports of the traffic of a listener. A gateway sends what it
// receives on. Source: Istio.
func (b *listenerBase) reports(side listenerSide) *telemetry.Side {
	if side == sideInbound {
		return b.received
	}
	return b.sent
}
