package access

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	httpauthzv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_authz/v3"
	networkauthzv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/ext_authz/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	mesh "istio.io/api/mesh/v1alpha1"
	security "istio.io/api/security/v1beta1"

	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/xds/gen/envoy"
)

// askedPrefix begins what filterCustom tells filterAsk, askedName the rules that it tells of.
// Source: Istio, whose users look for them in logs.
const (
	askedPrefix = "istio_ext_authz_"
	askedName   = "istio-ext-authz-"
	// badCustom ends the names of rules that refuse because nobody can be asked.
	badCustom = "-deny-due-to-bad-CUSTOM-action"
)

// askProvider is whom the CUSTOM policies of a proxy ask. The zero value: nobody, what they match
// is refused. Comparable.
type askProvider struct {
	provider *mesh.MeshConfig_ExtensionProvider
	host     string
	cluster  string
}

// askProviderOf finds the provider. There is none when the policies name several, one that the mesh
// does not have, or one whose service the proxy does not know.
func askProviderOf(sc *push.Scope) askProvider {
	p := push.AskedProvider(sc.Mesh.Config, sc.AuthorizationPolicy)
	if p == nil {
		return askProvider{}
	}
	host, port, known := sc.ProviderAddress(p)
	if !known {
		return askProvider{}
	}
	return askProvider{p, host, envoy.OutboundCluster(port, "", host)}
}

// asks says whether the provider can be asked: about connections only by gRPC.
func (in extensionsIn) asks(tcp bool) bool {
	return in.ask.provider != nil && (!tcp || in.ask.provider.GetEnvoyExtAuthzGrpc() != nil)
}

// asked are the rules of CUSTOM policies, by which filterAsk knows when to ask. They are the same
// whether somebody can be asked or not: filterAsk alone changes then, at once, and there is no
// moment at which nobody judges. It may also come later than these, when it waits for the
// provider's cluster.
func (s rbacScope) asked(in extensionsIn) *rbacv3.RBAC {
	prefix := askedName
	if in.ask.provider != nil {
		prefix += in.ask.provider.Name + "-"
	}
	rules, _ := s.rules(in.policies, security.AuthorizationPolicy_CUSTOM, prefix)
	return rules
}

// unasked refuse what CUSTOM policies match.
func (s rbacScope) unasked(in extensionsIn) *rbacv3.RBAC {
	refused, _ := s.rules(in.policies, security.AuthorizationPolicy_CUSTOM, "")
	if refused == nil {
		return nil
	}
	rules := &rbacv3.RBAC{Action: refused.Action, Policies: map[string]*rbacv3.Policy{}}
	for name, p := range refused.Policies {
		rules.Policies[name+badCustom] = p
	}
	return rules
}

// filter asks the provider about what filterCustom told of. Only a provider that can be asked has
// one: see asks.
func (a askProvider) filter(tcp bool) proto.Message {
	switch {
	case tcp:
		return a.ofConnections()
	case a.provider.GetEnvoyExtAuthzHttp() != nil:
		return a.http()
	default:
		return a.grpc()
	}
}

// ofConnections asks about connections, by gRPC alone.
func (a askProvider) ofConnections() proto.Message {
	p := a.provider.GetEnvoyExtAuthzGrpc()
	return &networkauthzv3.ExtAuthz{
		StatPrefix:             "tcp.",
		FailureModeAllow:       p.FailOpen,
		TransportApiVersion:    corev3.ApiVersion_V3,
		GrpcService:            a.grpcService(p),
		IncludePeerCertificate: true,
		FilterEnabledMetadata:  toldOf("envoy.filters.network.rbac"),
	}
}

// grpc asks about requests by gRPC.
func (a askProvider) grpc() proto.Message {
	p := a.provider.GetEnvoyExtAuthzGrpc()
	return &httpauthzv3.ExtAuthz{
		Services:               &httpauthzv3.ExtAuthz_GrpcService{GrpcService: a.grpcService(p)},
		TransportApiVersion:    corev3.ApiVersion_V3,
		FailureModeAllow:       p.FailOpen,
		StatusOnError:          statusOf(p.StatusOnError),
		ClearRouteCache:        p.ClearRouteCache,
		WithRequestBody:        bodySettings(p.IncludeRequestBodyInCheck),
		IncludePeerCertificate: true,
		FilterEnabledMetadata:  toldOf("envoy.filters.http.rbac"),
	}
}

func (a askProvider) grpcService(p *mesh.MeshConfig_ExtensionProvider_EnvoyExternalAuthorizationGrpcProvider) *corev3.GrpcService {
	return &corev3.GrpcService{
		Timeout: askTimeout(p.Timeout),
		TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{
			ClusterName: a.cluster,
			Authority:   strings.ReplaceAll(a.cluster, "|", "_."), // the name itself cannot stand in an authority
		}},
	}
}

// http asks about requests by HTTP.
func (a askProvider) http() proto.Message {
	p := a.provider.GetEnvoyExtAuthzHttp()
	service := &httpauthzv3.HttpService{
		PathPrefix: p.PathPrefix,
		ServerUri: &corev3.HttpUri{
			Uri:              "http://" + a.host, // Envoy wants one and asks the cluster
			HttpUpstreamType: &corev3.HttpUri_Cluster{Cluster: a.cluster},
			Timeout:          askTimeout(p.Timeout),
		},
		AuthorizationResponse: &httpauthzv3.AuthorizationResponse{
			AllowedUpstreamHeaders:        headerNames(p.HeadersToUpstreamOnAllow),
			AllowedClientHeaders:          headerNames(p.HeadersToDownstreamOnDeny),
			AllowedClientHeadersOnSuccess: headerNames(p.HeadersToDownstreamOnAllow),
		},
	}
	for _, name := range slices.Sorted(maps.Keys(p.IncludeAdditionalHeadersInCheck)) {
		if service.AuthorizationRequest == nil {
			service.AuthorizationRequest = &httpauthzv3.AuthorizationRequest{}
		}
		service.AuthorizationRequest.HeadersToAdd = append(service.AuthorizationRequest.HeadersToAdd,
			&corev3.HeaderValue{Key: name, Value: p.IncludeAdditionalHeadersInCheck[name]})
	}
	return &httpauthzv3.ExtAuthz{
		Services:              &httpauthzv3.ExtAuthz_HttpService{HttpService: service},
		TransportApiVersion:   corev3.ApiVersion_V3,
		AllowedHeaders:        headerNames(includedHeaders(p)),
		FailureModeAllow:      p.FailOpen,
		StatusOnError:         statusOf(p.StatusOnError),
		ClearRouteCache:       p.ClearRouteCache,
		WithRequestBody:       bodySettings(p.IncludeRequestBodyInCheck),
		FilterEnabledMetadata: toldOf("envoy.filters.http.rbac"),
	}
}

// includedHeaders are the request's headers that the provider sees, by the field that is in use or
// by its successor.
func includedHeaders(p *mesh.MeshConfig_ExtensionProvider_EnvoyExternalAuthorizationHttpProvider) []string {
	if len(p.IncludeRequestHeadersInCheck) > 0 {
		return p.IncludeRequestHeadersInCheck
	}
	return p.IncludeHeadersInCheck //nolint:staticcheck // Istio's old name, which configuration may still have
}

// toldOf is the condition that filterCustom told of a rule: of any provider, for the two filters
// may arrive apart, and a proxy asks one provider only.
func toldOf(filter string) *matcherv3.MetadataMatcher {
	prefix := envoy.Prefix(askedName)
	return envoy.MetadataMatch(filter, []string{askedPrefix + "shadow_effective_policy_id"}, envoy.TextValue(prefix))
}

// askTimeout is how long the provider may take. Source: istio.io, extension providers: 600s when
// unset.
func askTimeout(d *durationpb.Duration) *durationpb.Duration {
	if d == nil {
		return durationpb.New(10 * time.Minute)
	}
	return d
}

// statusOf is the status of a request about which nobody could be asked; nil: 403.
func statusOf(code string) *typev3.HttpStatus {
	n, err := strconv.ParseInt(code, 10, 32)
	if err != nil {
		return nil
	}
	if _, ok := typev3.StatusCode_name[int32(n)]; !ok || n == 0 {
		return nil
	}
	return &typev3.HttpStatus{Code: typev3.StatusCode(n)}
}

func bodySettings(b *mesh.MeshConfig_ExtensionProvider_EnvoyExternalAuthorizationRequestBody) *httpauthzv3.BufferSettings {
	if b == nil {
		return nil
	}
	return &httpauthzv3.BufferSettings{MaxRequestBytes: b.MaxRequestBytes, AllowPartialMessage: b.AllowPartialMessage,
		PackAsBytes: b.PackAsBytes}
}

// headerNames are names of headers, with a star before or after for all that end or begin so; nil
// for none.
func headerNames(names []string) *matcherv3.ListStringMatcher {
	var out []*matcherv3.StringMatcher
	for _, n := range names {
		if m := textMatch(n); m != nil {
			m.IgnoreCase = m.GetSafeRegex() == nil
			out = append(out, m)
		}
	}
	if out == nil {
		return nil
	}
	return &matcherv3.ListStringMatcher{Patterns: out}
}
