package access

import (
	"crypto/sha256"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	httpauthzv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_authz/v3"
	jwtv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/jwt_authn/v3"
	httprbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	networkauthzv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/ext_authz/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	networkrbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/rbac/v3"
	"google.golang.org/protobuf/proto"
	security "istio.io/api/security/v1beta1"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/xds/gen/envoy"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// The filters that judge requests and connections. Every inbound and gateway chain names them, in
// this order, and they are fetched by extension configuration discovery: a changed policy changes
// what a name means and no listener, so that it holds for the next request of an open connection,
// and for the next connection.
//
// Envoy 1.40, tried: a listener whose filters have not arrived is not opened; a filter may turn
// from RBAC into ext_authz and back while connections are open; one RBAC rule that Envoy refuses (a
// header in a filter of connections) costs the whole update, and what was there before goes on
// being enforced.
const (
	FilterForeign = "ashore.authz.foreign"      // refuses names of the mesh for which other authorities vouch
	filterRevoked = "ashore.authz.revoked"      // refuses whom nobody trusts any more
	filterTokens  = config.AuthenticationFilter // checks the tokens of requests
	filterCustom  = config.AuthorizationFilter  // finds out whether filterAsk has to ask
	FilterAsk     = "ashore.authz.ask"          // asks the provider of CUSTOM policies; refuses where nobody can be asked
	filterAudit   = "ashore.authz.audit"
	filterDeny    = "ashore.authz.deny"
	filterAllow   = "ashore.authz.allow"
	// OfConnections ends the name of the filter of connections.
	OfConnections = ".tcp"
)

// RequestFilters are the filters of requests in their order. Source for tokens, CUSTOM, AUDIT,
// DENY, ALLOW: Istio.
func RequestFilters() []string {
	return []string{filterRevoked, filterTokens, filterCustom, FilterAsk, filterAudit, filterDeny, filterAllow}
}

// ConnectionFilters are those of connections.
func ConnectionFilters() []string {
	return []string{filterRevoked, filterCustom, FilterAsk, filterAudit, filterDeny, filterAllow}
}

// Generator makes the filters that are fetched on their own.
type Generator struct{ texts intern.Lists[string] }

// extensionsIn is all that the filters of a proxy depend on.
type extensionsIn struct {
	policies *intern.List[*config.Object]
	// domains are the mesh's trust domain and its aliases.
	domains *intern.List[string]
	// identities and certificates are the revoked ones.
	identities, certificates *intern.List[string]
	// ask is the provider of the CUSTOM policies.
	ask askProvider
	// tokens is what is asked of tokens.
	tokens jwtIn
}

// Plans implements envoy.Kind.
func (g *Generator) Plans(sc *push.Scope) (shared, own envoy.Plan) { return g.inputs(sc), nil }

// inputs are what the filters of a scope depend on.
func (g *Generator) inputs(sc *push.Scope) extensionsIn {
	in := extensionsIn{policies: sc.AuthorizationPolicy, domains: g.texts.Of(sc.Mesh.TrustDomains())}
	if t := sc.Trust; t != nil {
		in.identities, in.certificates = g.texts.Of(t.Identities), g.texts.Of(t.Certificates)
	}
	in.ask, in.tokens = askProviderOf(sc), tokenChecks(sc)
	return in
}

// Layer makes all filters.
func (in extensionsIn) Layer() *envoy.Layer {
	var out []*resource.Resource
	for _, side := range []struct {
		scope  rbacScope
		names  []string
		suffix string
	}{
		{rbacScope{domains: in.domains.Items()}, RequestFilters(), ""},
		{rbacScope{domains: in.domains.Items(), tcp: true}, ConnectionFilters(), OfConnections},
	} {
		for _, name := range append(side.names, FilterForeign) {
			m, cluster := in.filter(side.scope, name)
			out = append(out, newFilter(name+side.suffix, cluster, m))
		}
	}
	return envoy.NewLayer(out...)
}

// filter is one of the filters, and the cluster that it asks.
func (in extensionsIn) filter(s rbacScope, name string) (m proto.Message, cluster string) {
	switch name {
	case FilterForeign:
		return s.filter(s.impostors(), nil, ""), ""
	case filterRevoked:
		return s.filter(in.revocations(), nil, ""), ""
	case filterTokens:
		if tokens := in.tokens.build(); tokens != nil {
			return tokens, ""
		}
	case filterCustom:
		return s.filter(nil, s.asked(in), askedPrefix), ""
	case FilterAsk:
		if in.asks(s.tcp) {
			return in.ask.filter(s.tcp), in.ask.cluster
		}
		return s.filter(s.unasked(in), nil, ""), ""
	case filterAudit:
		return s.policyFilter(in, security.AuthorizationPolicy_AUDIT, ""), ""
	case filterDeny:
		return s.policyFilter(in, security.AuthorizationPolicy_DENY, "istio_dry_run_deny_"), ""
	case filterAllow:
		return s.policyFilter(in, security.AuthorizationPolicy_ALLOW, "istio_dry_run_allow_"), ""
	}
	return s.filter(nil, nil, ""), ""
}

// newFilter is a filter that asks a cluster; empty: none.
func newFilter(name, cluster string, m proto.Message) *resource.Resource {
	var refs []resource.Ref
	if cluster != "" {
		refs = append(refs, resource.Ref{TypeURL: resource.ClusterType, Name: cluster})
	}
	for _, other := range takers(name) {
		refs = append(refs, resource.Ref{TypeURL: resource.ExtensionConfigType, Name: other})
	}
	r := resource.New(resource.ExtensionConfigType, name, refs, func() []byte {
		return resource.Encode(envoy.Extension(name, m))
	})
	r.Guards = guards(m)
	return r
}

// guards returns what a filter refuses or asks about: each rule of a DENY filter, and any other
// filter as a whole.
func guards(m proto.Message) []string {
	switch m := m.(type) {
	case *httprbacv3.RBAC:
		return append(ruleGuards(m.Rules), ruleGuards(m.ShadowRules)...)
	case *networkrbacv3.RBAC:
		return append(ruleGuards(m.Rules), ruleGuards(m.ShadowRules)...)
	}
	return []string{guard(m)}
}

func ruleGuards(rules *rbacv3.RBAC) (out []string) {
	switch {
	case rules == nil || rules.Action == rbacv3.RBAC_LOG:
		return nil
	case rules.Action != rbacv3.RBAC_DENY:
		return []string{guard(rules)}
	}
	for name, policy := range rules.Policies {
		out = append(out, name+" "+guard(policy))
	}
	slices.Sort(out)
	return out
}

func guard(m proto.Message) string {
	sum := sha256.Sum256(resource.Encode(m))
	return string(sum[:])
}

// takers are the filters that may take over what one of that name judged: a policy that denied
// becomes one that asks. None take over what revocations refuse.
func takers(name string) (out []string) {
	base, connections := strings.CutSuffix(name, OfConnections)
	names := RequestFilters()
	if connections {
		names = ConnectionFilters()
	}
	judges := slices.DeleteFunc(names, func(n string) bool { return n == filterRevoked || n == filterAudit })
	if !slices.Contains(judges, base) {
		return nil
	}
	for _, other := range judges {
		if other != base {
			out = append(out, other+name[len(base):])
		}
	}
	return out
}

// policyFilter enforces the policies of one action.
func (s rbacScope) policyFilter(in extensionsIn, action security.AuthorizationPolicy_Action,
	shadowPrefix string) proto.Message {
	rules, tried := s.rules(in.policies, action, "")
	return s.filter(rules, tried, shadowPrefix)
}

// filter is an RBAC filter. Without rules it lets everything through; shadow rules are counted and
// told to later filters under names that begin with shadowPrefix.
func (s rbacScope) filter(rules, shadow *rbacv3.RBAC, shadowPrefix string) proto.Message {
	if shadow == nil {
		shadowPrefix = ""
	}
	if s.tcp {
		return &networkrbacv3.RBAC{StatPrefix: "tcp.", Rules: rules, ShadowRules: shadow,
			ShadowRulesStatPrefix: shadowPrefix}
	}
	return &httprbacv3.RBAC{Rules: rules, ShadowRules: shadow, ShadowRulesStatPrefix: shadowPrefix}
}

// discovered says that a filter is fetched on its own, and which extensions it may turn into. Until
// it arrives, nothing passes.
func discovered(name string, connections bool) *corev3.ExtensionConfigSource {
	var rbac, ask proto.Message = &httprbacv3.RBAC{}, &httpauthzv3.ExtAuthz{}
	if connections {
		rbac, ask = &networkrbacv3.RBAC{}, &networkauthzv3.ExtAuthz{}
	}
	types := []proto.Message{rbac}
	switch name {
	case FilterAsk:
		types = append(types, ask)
	case filterTokens:
		types = append(types, &jwtv3.JwtAuthentication{})
	}
	out := &corev3.ExtensionConfigSource{ConfigSource: envoy.FromADS()}
	for _, m := range types {
		out.TypeUrls = append(out.TypeUrls, envoy.TypeURL(m))
	}
	return out
}

// JudgeRequests are the filters of requests of these names, as listeners name them.
func JudgeRequests(names ...string) []*hcmv3.HttpFilter {
	out := make([]*hcmv3.HttpFilter, 0, len(names))
	for _, name := range names {
		out = append(out, &hcmv3.HttpFilter{Name: name,
			ConfigType: &hcmv3.HttpFilter_ConfigDiscovery{ConfigDiscovery: discovered(name, false)}})
	}
	return out
}

// JudgeConnections are the filters of connections of these names, as listeners name them.
func JudgeConnections(names ...string) []*listenerv3.Filter {
	out := make([]*listenerv3.Filter, 0, len(names))
	for _, name := range names {
		out = append(out, &listenerv3.Filter{
			Name:       name + OfConnections,
			ConfigType: &listenerv3.Filter_ConfigDiscovery{ConfigDiscovery: discovered(name, true)},
		})
	}
	return out
}
