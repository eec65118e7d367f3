package listener

import (
	"slices"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"

	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/xds/gen/access"
	"github.com/ashore-mesh/ashore/xds/gen/envoy"
	"github.com/ashore-mesh/ashore/xds/gen/layout"
	"github.com/ashore-mesh/ashore/xds/gen/telemetry"
)

// listenerSettings is what the listeners of one proxy have in common.
type listenerSettings struct {
	mesh         *push.Mesh
	caps         push.Capabilities
	interception push.Interception
	families     envoy.Families
	// catchAll is the cluster of connections to unknown destinations.
	catchAll string
	// identity says that the proxy has a certificate of the mesh.
	identity bool
	// proven bounds the connections of callers who show a certificate.
	proven push.ConnectionBounds
}

// settingsOf picks what all listeners of a proxy depend on out of a scope.
func settingsOf(sc *push.Scope) listenerSettings {
	out := listenerSettings{
		mesh:         sc.Mesh,
		caps:         sc.Capabilities,
		interception: sc.Interception,
		families:     envoy.CapturedFamilies(sc),
		catchAll:     layout.CatchAllCluster(sc),
		identity:     sc.Identity,
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
	// requestLogs and connectionLogs log and count requests and raw connections, by the side of their
	// listener. unmatchedLog is for connections that no filter chain takes; nil: they are not logged.
	requestLogs, connectionLogs map[listenerSide][]*accesslogv3.AccessLog
	unmatchedLog                []*accesslogv3.AccessLog
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
	requests, connections := accessLogs(s.mesh.Config, nil), accessLogs(s.mesh.Config, telemetry.AtConnectionEnd())
	b.requestLogs, b.connectionLogs = map[listenerSide][]*accesslogv3.AccessLog{}, map[listenerSide][]*accesslogv3.AccessLog{}
	for side, reporter := range map[listenerSide]telemetry.Reporter{sideOutbound: telemetry.Source,
		sideInbound: telemetry.Destination, sideGateway: telemetry.Source} {
		b.requestLogs[side], b.connectionLogs[side] = requests, connections
		if s.caps.Has(envoy.Metrics) {
			b.requestLogs[side] = slices.Concat(requests, telemetry.Requests(reporter))
			b.connectionLogs[side] = slices.Concat(connections, telemetry.Connections(reporter))
		}
	}
	if !s.mesh.Config.GetDisableEnvoyListenerLog() {
		b.unmatchedLog = accessLogs(s.mesh.Config, noChainFilter())
	}
	judges := append([]*hcmv3.HttpFilter{access.BadHostFilter()}, access.JudgeRequests(access.RequestFilters()...)...)
	b.httpFilters, b.judgedFilters = httpFilters(s.caps, nil), httpFilters(s.caps, judges)
	b.judges = access.JudgeConnections(access.ConnectionFilters()...)
	filters := func(cluster string, log []*accesslogv3.AccessLog) []*listenerv3.Filter {
		return []*listenerv3.Filter{tcpFilter(tcpProxy(tcpSpec{statPrefix: cluster, cluster: cluster}, log))}
	}
	b.catchAllFilters, b.blackHoleFilters = filters(s.catchAll, b.connectionLogs[sideOutbound]), filters(envoy.BlackHole, nil)
	return b
}
