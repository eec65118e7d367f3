package listener

import (
	"slices"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	corsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/cors/v3"
	faultv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	grpcstatsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/grpc_stats/v3"
	grpcwebv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/grpc_web/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	mesh "istio.io/api/mesh/v1alpha1"

	"github.com/ashore-mesh/ashore/xds/gen/access"
	"github.com/ashore-mesh/ashore/xds/gen/envoy"
)

// serverName is what proxies call themselves in the response header "server". Source: Istio, whose
// users' tests look for it.
const serverName = "istio-envoy"

// httpFilters are the filters of requests, the router last. Routes configure fault and cors. judges
// are those of policies, where requests arrive from others.
func httpFilters(judges []*hcmv3.HttpFilter) []*hcmv3.HttpFilter {
	out := []*hcmv3.HttpFilter{envoy.HTTPFilter("envoy.filters.http.grpc_stats", &grpcstatsv3.FilterConfig{
		EmitFilterState:        true,
		PerMethodStatSpecifier: &grpcstatsv3.FilterConfig_StatsForAllMethods{StatsForAllMethods: wrapperspb.Bool(false)},
	})}
	return append(append(out, judges...),
		envoy.HTTPFilter("envoy.filters.http.fault", &faultv3.HTTPFault{}),
		envoy.HTTPFilter("envoy.filters.http.cors", &corsv3.Cors{}),
		envoy.HTTPFilter("envoy.filters.http.router", &routerv3.Router{}),
	)
}

// httpManager configures the network filter that routes requests.
//
// Source: Istio's connection managers: no idle timeout of streams, websocket upgrades, 100-continue
// handed on; only gateways take the client's address from the connection.
func (b *listenerBase) httpManager(side listenerSide, s httpSpec) *hcmv3.HttpConnectionManager {
	reports := b.reports(side)
	m := &hcmv3.HttpConnectionManager{
		CodecType:          hcmv3.HttpConnectionManager_AUTO,
		StatPrefix:         s.statPrefix,
		ServerName:         serverName,
		HttpFilters:        b.httpFilters,
		AccessLog:          reports.Requests,
		Tracing:            reports.Tracing,
		RequestIdExtension: reports.RequestID,
		UseRemoteAddress:   wrapperspb.Bool(side == sideGateway),
		StreamIdleTimeout:  durationpb.New(0),
		Proxy_100Continue:  true,
		UpgradeConfigs:     []*hcmv3.HttpConnectionManager_UpgradeConfig{{UpgradeType: "websocket"}},
	}
	if s.absoluteURLs {
		m.HttpProtocolOptions = &corev3.Http1ProtocolOptions{AllowAbsoluteUrl: wrapperspb.Bool(true)}
	}
	if s.route != "" {
		m.RouteSpecifier = &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{ConfigSource: envoy.FromADS(),
			RouteConfigName: s.route}}
	} else {
		m.RouteSpecifier = &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: s.inbound.build()}
	}
	forwardClientCertificate(m, side)
	if side != sideOutbound {
		m.HttpFilters = b.judgedFilters
		m.StripTrailingHostDot = true
		m.LocalReplyConfig = access.BadHostReply()
	}
	if b.dynamic && side != sideInbound {
		m.HttpFilters = resolveRequests(m.HttpFilters, b.dynamicFamilies)
	}
	if s.grpcWeb {
		grpcWeb := envoy.HTTPFilter("envoy.filters.http.grpc_web", &grpcwebv3.GrpcWeb{})
		m.HttpFilters = slices.Concat([]*hcmv3.HttpFilter{grpcWeb}, m.HttpFilters)
	}
	normalizePath(m, b.mesh.Config.GetPathNormalization().GetNormalization())
	return m
}

// forwardClientCertificate replaces x-forwarded-client-cert with the certificate of the connection.
// Without a certificate Envoy removes the header. Source: Istio for the details; its sidecars
// append, so that an application that reads the first element believes what the caller wrote.
func forwardClientCertificate(m *hcmv3.HttpConnectionManager, side listenerSide) {
	if side == sideOutbound {
		return
	}
	m.ForwardClientCertDetails = hcmv3.HttpConnectionManager_SANITIZE_SET
	m.SetCurrentClientCertDetails = &hcmv3.HttpConnectionManager_SetCurrentClientCertDetails{
		Subject: wrapperspb.Bool(true), Cert: side == sideGateway, Dns: true, Uri: true,
	}
}

// normalizePath rewrites paths before they are matched. Source: Istio's
// MeshConfig.pathNormalization; its default is BASE.
func normalizePath(m *hcmv3.HttpConnectionManager, n mesh.MeshConfig_ProxyPathNormalization_NormalizationType) {
	m.PathWithEscapedSlashesAction = hcmv3.HttpConnectionManager_KEEP_UNCHANGED
	m.NormalizePath = wrapperspb.Bool(n != mesh.MeshConfig_ProxyPathNormalization_NONE)
	switch n {
	case mesh.MeshConfig_ProxyPathNormalization_MERGE_SLASHES:
		m.MergeSlashes = true
	case mesh.MeshConfig_ProxyPathNormalization_DECODE_AND_MERGE_SLASHES:
		m.MergeSlashes = true
		m.PathWithEscapedSlashesAction = hcmv3.HttpConnectionManager_UNESCAPE_AND_FORWARD
	}
}
