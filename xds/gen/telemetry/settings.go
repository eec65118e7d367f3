package telemetry

import (
	"slices"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	datalogv3 "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	mesh "istio.io/api/mesh/v1alpha1"
	telemetry "istio.io/api/telemetry/v1alpha1"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/xds/gen/envoy"
)

// Settings is everything that the telemetry of a proxy depends on. Comparable.
type Settings struct {
	mesh *push.Mesh
	// spans has what the proxy's settings say of tracing.
	spans *mesh.Tracing
	// objects are the Telemetry objects of the proxy, from the mesh down to its labels.
	objects *intern.List[*config.Object]
	// services are the services of providers that the proxy knows.
	services *intern.List[service]
}

// service is the service of a provider.
type service struct {
	provider *mesh.MeshConfig_ExtensionProvider
	host     string
	port     uint32
}

// Reader reads the settings of proxies. Equal settings are == . Safe for concurrent use.
type Reader struct{ services intern.Lists[service] }

// Of returns the settings of a proxy. Providers whose services the proxy does not know are left out.
func (r *Reader) Of(sc *push.Scope) Settings {
	var known []service
	for _, p := range sc.Mesh.Config.GetExtensionProviders() {
		if host, port, ok := sc.ProviderAddress(p); ok && config.SignalOf(p) != config.Requests {
			known = append(known, service{p, host, port})
		}
	}
	return Settings{sc.Mesh, sc.ProxyConfig.GetTracing(), sc.Telemetry, r.services.Of(known)}
}

// serviceOf returns the service of a provider, if the proxy knows it.
func (s Settings) serviceOf(p *mesh.MeshConfig_ExtensionProvider) (service, bool) {
	for _, to := range s.services.Items() {
		if to.provider == p {
			return to, true
		}
	}
	return service{}, false
}

func (s service) cluster() string { return envoy.OutboundCluster(s.port, "", s.host) }

// provider returns the mesh's provider of a name that receives a signal; nil if there is none.
func (s Settings) provider(name string, signal config.Signal) *mesh.MeshConfig_ExtensionProvider {
	for _, p := range s.mesh.Config.GetExtensionProviders() {
		if p.Name == name && config.SignalOf(p) == signal {
			return p
		}
	}
	return nil
}

// Side is what a proxy reports of the traffic that it sends, or of what it receives.
type Side struct {
	// Requests and Connections log and count requests and raw connections. Unmatched is for
	// connections that no filter chain takes.
	Requests, Connections, Unmatched []*accesslogv3.AccessLog
	// Tracing is nil if there are no spans. RequestID is nil for Envoy's default.
	Tracing   *hcmv3.HttpConnectionManager_Tracing
	RequestID *hcmv3.RequestIDExtension
	// Clusters are called by the loggers and by the tracer.
	Clusters []string
}

// Side returns what a proxy reports as one side.
func (s Settings) Side(by Reporter) *Side {
	out := &Side{}
	for _, l := range s.accessLogs(by) {
		if l.requests {
			out.Requests = append(out.Requests, l.at(nil))
		}
		if l.connections {
			out.Connections = append(out.Connections, l.at(at(datalogv3.AccessLogType_TcpConnectionEnd)))
			if !s.mesh.Config.GetDisableEnvoyListenerLog() {
				out.Unmatched = append(out.Unmatched, l.at(noChain()))
			}
		}
		if l.cluster != "" {
			out.Clusters = append(out.Clusters, l.cluster)
		}
	}
	if o, counts := s.overrides(by); counts {
		out.Requests = append(out.Requests, requests(by, o)...)
		out.Connections = append(out.Connections, connections(by, o)...)
	}
	if t := s.tracing(by); t.service.provider != nil {
		out.Tracing, out.RequestID = t.build(), t.requestID()
		out.Clusters = append(out.Clusters, t.service.cluster())
	}
	return out
}

// specs returns the specifications of the Telemetry objects.
func (s Settings) specs() []*telemetry.Telemetry {
	out := make([]*telemetry.Telemetry, 0, s.objects.Len())
	for _, o := range s.objects.Items() {
		out = append(out, o.Spec.(*telemetry.Telemetry))
	}
	return out
}

// matches reports whether an entry of a mode is for a side.
func (by Reporter) matches(mode telemetry.WorkloadMode) bool {
	side := telemetry.WorkloadMode_CLIENT
	if by == Destination {
		side = telemetry.WorkloadMode_SERVER
	}
	return mode == telemetry.WorkloadMode_CLIENT_AND_SERVER || mode == side
}

// entry is an entry of accessLogging or metrics.
type entry interface {
	GetProviders() []*telemetry.ProviderRef
}

// eachEntry calls f for the entries of all levels in order, with each provider in scope that an
// entry is for. An entry without providers is for those of the entry before it, the first for
// defaults. In scope are the providers of the last level that names any, or else defaults.
// Source: Istio, mergeLogs and mergeMetrics.
func eachEntry[E entry](levels [][]E, defaults []string, f func(e E, provider string)) (inScope []string) {
	inScope = defaults
	for _, entries := range levels {
		var names []string
		for _, e := range entries {
			names = append(names, namesOf(e.GetProviders())...)
		}
		if len(names) > 0 {
			inScope = names
		}
	}
	current := defaults
	for _, e := range slices.Concat(levels...) {
		if names := namesOf(e.GetProviders()); len(names) > 0 {
			current = names
		}
		for _, name := range current {
			if slices.Contains(inScope, name) {
				f(e, name)
			}
		}
	}
	return inScope
}

func namesOf(refs []*telemetry.ProviderRef) []string {
	out := make([]string, 0, len(refs))
	for _, r := range refs {
		out = append(out, r.GetName())
	}
	return out
}
