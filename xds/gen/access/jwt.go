package access

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	jwtv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/jwt_authn/v3"
	"google.golang.org/protobuf/types/known/emptypb"
	security "istio.io/api/security/v1beta1"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/internal/jwks"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/xds/gen/envoy"
)

// noKeys is a key set by which no token is good. Envoy 1.40 refuses one without keys, and with it
// all that a policy says; so this one holds a key that nobody has the private part of: a point of
// P-256 whose x is the SHA-256 of "Ashore: a public key of nobody 1".
const noKeys = `{"keys":[{"kty":"EC","crv":"P-256","alg":"ES256","use":"sig",` +
	`"x":"qCPtLOZIToVmNRQ2ebm9SiK_JH6mani2UtugUxQdQR0","y":"b4OYWuE2Pk98rvTc2mhDa9LBwghNIo3PC-UP65xY5GQ"}]}`

// jwtIn is everything that the check of tokens depends on.
type jwtIn struct {
	// policies are the RequestAuthentications of the proxy, the older first.
	policies *intern.List[*config.Object]
	// keys are those that were fetched.
	keys *push.KeySets
	// reroute says that routes ask for claims, so that one is chosen again once there are some.
	reroute bool
}

// tokenChecks is the part of a scope that the check of tokens depends on. Who has no policy depends
// on no keys.
func tokenChecks(sc *push.Scope) jwtIn {
	if sc.RequestAuthentication.Len() == 0 {
		return jwtIn{}
	}
	return jwtIn{policies: sc.RequestAuthentication, keys: sc.Keys, reroute: sc.Type == push.Router}
}

// rules are the rules for tokens of all policies, by issuer; those of one issuer in the order of
// their policies.
func (in jwtIn) rules() []*security.JWTRule {
	var out []*security.JWTRule
	for _, o := range in.policies.Items() {
		out = append(out, o.Spec.(*security.RequestAuthentication).JwtRules...)
	}
	slices.SortStableFunc(out, func(a, b *security.JWTRule) int { return cmp.Compare(a.GetIssuer(), b.GetIssuer()) })
	return out
}

// build makes the filter's configuration; nil: no token is looked at.
//
// Source: istio.io, RequestAuthentication: a request without a token passes, one with a token that
// no rule accepts is answered with 401. Which requests need one is for AuthorizationPolicy to say.
// Preflight requests of browsers bear no token.
func (in jwtIn) build() *jwtv3.JwtAuthentication {
	rules := in.rules()
	if len(rules) == 0 {
		return nil
	}
	out := &jwtv3.JwtAuthentication{Providers: make(map[string]*jwtv3.JwtProvider, len(rules)),
		BypassCorsPreflight: true}
	var groups []tokenGroup
	for i, r := range slices.Backward(rules) { // policies see the token that is checked last: the first issuer's
		name, p := "origins-"+strconv.Itoa(i), in.provider(r)
		out.Providers[name] = p
		groups = withProvider(groups, name, tokenPlaces(p))
	}
	all := make([]*jwtv3.JwtRequirement, len(groups))
	for i, g := range groups {
		all[i] = oneOfTokens(g.providers)
	}
	out.Rules = []*jwtv3.RequirementRule{{
		Match:           envoy.EveryPath(),
		RequirementType: &jwtv3.RequirementRule_Requires{Requires: allOf(all)},
	}}
	return out
}

// tokenGroup is providers that have places in common where they look for tokens. Each group wants a
// valid token or none: a valid token of one must not bring in an invalid one of another, which the
// workload may read.
type tokenGroup struct{ providers, places []string }

// withProvider adds a provider to the groups that look where it looks, which become one.
func withProvider(groups []tokenGroup, name string, places []string) []tokenGroup {
	g := tokenGroup{[]string{name}, places}
	groups = slices.DeleteFunc(groups, func(o tokenGroup) bool {
		shared := slices.ContainsFunc(places, func(p string) bool { return slices.Contains(o.places, p) })
		if shared {
			g.providers, g.places = append(g.providers, o.providers...), append(g.places, o.places...)
		}
		return shared
	})
	return append(groups, g)
}

// tokenPlaces are where a provider looks for tokens: Envoy's own places where it names none.
func tokenPlaces(p *jwtv3.JwtProvider) []string {
	var out []string
	for _, h := range p.FromHeaders {
		out = append(out, "header "+strings.ToLower(h.Name))
	}
	for _, name := range p.FromParams {
		out = append(out, "parameter "+name)
	}
	for _, name := range p.FromCookies {
		out = append(out, "cookie "+name)
	}
	if out == nil {
		return []string{"header authorization", "parameter access_token"}
	}
	return out
}

// oneOfTokens accepts a request whose token one of the providers accepts, and one that bears no
// token.
//
// Several providers may look at the same place of a request, where a token of one issuer is a bad
// one to the others: so one that is accepted is enough. Where none is, there must not be any, for
// any provider.
func oneOfTokens(providers []string) *jwtv3.JwtRequirement {
	missing := &jwtv3.JwtRequirement{RequiresType: &jwtv3.JwtRequirement_AllowMissing{AllowMissing: &emptypb.Empty{}}}
	accepted, each := []*jwtv3.JwtRequirement{}, []*jwtv3.JwtRequirement{}
	for _, name := range providers {
		one := &jwtv3.JwtRequirement{RequiresType: &jwtv3.JwtRequirement_ProviderName{ProviderName: name}}
		accepted, each = append(accepted, one), append(each, anyOf(one, missing))
	}
	if len(providers) == 1 {
		return each[0]
	}
	return anyOf(append(accepted, allOf(each))...)
}

// allOf is the one requirement, or that all of several hold.
func allOf(list []*jwtv3.JwtRequirement) *jwtv3.JwtRequirement {
	if len(list) == 1 {
		return list[0]
	}
	return &jwtv3.JwtRequirement{RequiresType: &jwtv3.JwtRequirement_RequiresAll{
		RequiresAll: &jwtv3.JwtRequirementAndList{Requirements: list},
	}}
}

func anyOf(list ...*jwtv3.JwtRequirement) *jwtv3.JwtRequirement {
	return &jwtv3.JwtRequirement{RequiresType: &jwtv3.JwtRequirement_RequiresAny{
		RequiresAny: &jwtv3.JwtRequirementOrList{Requirements: list},
	}}
}

// provider is one rule. A rule with jwksUri and without issuer is for tokens of every issuer that
// these keys verify. What Envoy would refuse of a rule, and with it all other rules, is one by which
// no token is good.
// Source: Istio, JWTRule.issuer.
func (in jwtIn) provider(r *security.JWTRule) *jwtv3.JwtProvider {
	p := in.providerOf(r)
	if (r.GetIssuer() != "" || r.GetJwksUri() != "") && p.Validate() == nil {
		return p
	}
	return in.providerOf(&security.JWTRule{Issuer: cmp.Or(r.GetIssuer(), "nobody"), Jwks: noKeys})
}

// providerOf is a rule as it was written. Claims of scopes are lists whose items stand between
// spaces.
func (in jwtIn) providerOf(r *security.JWTRule) *jwtv3.JwtProvider {
	p := &jwtv3.JwtProvider{
		Issuer:               r.GetIssuer(),
		Audiences:            r.GetAudiences(),
		Forward:              r.GetForwardOriginalToken(),
		ForwardPayloadHeader: r.GetOutputPayloadToHeader(),
		PayloadInMetadata:    envoy.JwtPayload,
		NormalizePayloadInMetadata: &jwtv3.JwtProvider_NormalizePayload{
			SpaceDelimitedClaims: distinct(append([]string{"scope", "permission"}, r.GetSpaceDelimitedClaims()...)),
		},
		FromParams:      r.GetFromParams(),
		FromCookies:     r.GetFromCookies(),
		ClearRouteCache: in.reroute,
		JwksSourceSpecifier: &jwtv3.JwtProvider_LocalJwks{
			LocalJwks: &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: in.keysFor(r)}},
		},
	}
	for _, h := range r.GetFromHeaders() {
		p.FromHeaders = append(p.FromHeaders, &jwtv3.JwtHeader{Name: h.GetName(), ValuePrefix: h.GetPrefix()})
	}
	for _, c := range r.GetOutputClaimToHeaders() {
		p.ClaimToHeaders = append(p.ClaimToHeaders, &jwtv3.JwtClaimToHeader{HeaderName: c.GetHeader(),
			ClaimName: c.GetClaim()})
	}
	return p
}

// keysFor are the keys of a rule; none when they have not been fetched yet or cannot be read, so
// that no token is taken unverified.
func (in jwtIn) keysFor(r *security.JWTRule) string {
	if r.GetJwks() != "" {
		if keys, err := jwks.Parse([]byte(r.Jwks)); err == nil {
			return keys.Text()
		}
		return noKeys
	}
	if keys, ok := in.keys.Get(push.KeyURL(r)); ok {
		return keys
	}
	return noKeys
}

// distinct drops what stands twice, the later one.
func distinct(in []string) []string {
	out := in[:0]
	for _, s := range in {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}
