package access

import (
	"strings"
	"testing"

	jwtv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/jwt_authn/v3"
	security "istio.io/api/security/v1beta1"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/push"
)

// tokenRules is the input of policies with one rule each.
func tokenRules(keys *push.KeySets, rules ...*security.JWTRule) jwtIn {
	var objects []*config.Object
	for _, r := range rules {
		objects = append(objects, &config.Object{Spec: &security.RequestAuthentication{JwtRules: []*security.JWTRule{r}}})
	}
	return jwtIn{policies: new(intern.Lists[*config.Object]).Of(objects), keys: keys}
}

// Keys stand in the rule, or were fetched, or are none: then no token is good.
func TestTokenKeys(t *testing.T) {
	t.Parallel()
	fetched := &push.KeySets{ByURL: map[string]string{
		"https://a/keys": `{"keys":[1]}`,
		"https://issuer/.well-known/openid-configuration": `{"keys":[2]}`,
	}}
	for name, tc := range map[string]struct {
		keys *push.KeySets
		rule *security.JWTRule
		want string
	}{
		"inline":      {fetched, &security.JWTRule{Issuer: "a", Jwks: " " + noKeys}, `{"keys":[{"use":"sig","kty":"EC","crv":"P-256","alg":"ES256",` + noKeys[strings.Index(noKeys, `"x"`):]},
		"any issuer":  {fetched, &security.JWTRule{JwksUri: "https://a/keys"}, `{"keys":[1]}`},
		"no URL":      {&push.KeySets{ByURL: map[string]string{"a/.well-known/openid-configuration": "x"}}, &security.JWTRule{Issuer: "a"}, noKeys},
		"unreadable":  {fetched, &security.JWTRule{Issuer: "a", Jwks: "{}"}, noKeys},
		"fetched":     {fetched, &security.JWTRule{Issuer: "a", JwksUri: "https://a/keys"}, `{"keys":[1]}`},
		"discovery":   {fetched, &security.JWTRule{Issuer: "https://issuer/"}, `{"keys":[2]}`},
		"not fetched": {fetched, &security.JWTRule{Issuer: "a", JwksUri: "https://b/keys"}, noKeys},
		"nothing yet": {nil, &security.JWTRule{Issuer: "a", JwksUri: "https://a/keys"}, noKeys},
	} {
		p := tokenRules(tc.keys, tc.rule).build().Providers["origins-0"]
		if got := p.GetLocalJwks().GetInlineString(); got != tc.want {
			t.Errorf("%s: got %s, want %s", name, got, tc.want)
		}
	}
}

// A token of any issuer is enough, none at all passes, and a bad one does not.
func TestTokenRequirement(t *testing.T) {
	t.Parallel()
	if got := tokenRules(nil).build(); got != nil {
		t.Errorf("without rules there is %v", got)
	}
	one := tokenRules(nil, &security.JWTRule{Issuer: "a",
		Jwks: "{}"}).build().Rules[0].GetRequires().GetRequiresAny().Requirements
	if len(one) != 2 || one[0].GetProviderName() != "origins-0" || one[1].GetAllowMissing() == nil {
		t.Errorf("of one issuer: %v", one)
	}
	two := tokenRules(nil, &security.JWTRule{Issuer: "b", Jwks: "{}"},
		&security.JWTRule{Issuer: "a", Jwks: "{}"}).build()
	if two.Providers["origins-0"].Issuer != "a" {
		t.Errorf("the issuers are in the order of their policies")
	}
	list := two.Rules[0].GetRequires().GetRequiresAny().Requirements
	if len(list) != 3 || len(list[2].GetRequiresAll().GetRequirements()) != 2 {
		t.Fatalf("of two issuers: %v", list)
	}
	for i, r := range list[2].GetRequiresAll().Requirements {
		if any := r.GetRequiresAny().GetRequirements(); len(any) != 2 || any[0].GetProviderName() == "" ||
			any[1].GetAllowMissing() == nil {
			t.Errorf("issuer %d: %v", i, any)
		}
	}
	for _, r := range list {
		if _, open := r.RequiresType.(*jwtv3.JwtRequirement_AllowMissingOrFailed); open {
			t.Error("a bad token passes")
		}
	}
}

// A rule that Envoy would refuse, or that names neither an issuer nor keys, is one by which no token
// is good, and leaves the others alone.
func TestOddTokenRules(t *testing.T) {
	t.Parallel()
	keys := &push.KeySets{ByURL: map[string]string{"https://a/keys": `{"keys":[1]}`}}
	good := &security.JWTRule{Issuer: "z", JwksUri: "https://a/keys"}
	for name, odd := range map[string]*security.JWTRule{
		"nothing":             nil,
		"no issuer":           {FromCookies: []string{"a"}},
		"a header's name":     {Issuer: "a", JwksUri: "https://a/keys", FromHeaders: []*security.JWTHeader{{Name: "a b\n"}}},
		"no header's name":    {Issuer: "a", JwksUri: "https://a/keys", FromHeaders: []*security.JWTHeader{nil}},
		"a claim's header":    {Issuer: "a", JwksUri: "https://a/keys", OutputClaimToHeaders: []*security.ClaimToHeader{{Header: "a\nb", Claim: "c"}}},
		"the payload's place": {Issuer: "a", JwksUri: "https://a/keys", OutputPayloadToHeader: "a\nb"},
	} {
		made := tokenRules(keys, odd, good).build()
		if err := made.Validate(); err != nil {
			t.Errorf("%s: Envoy refuses it: %v", name, err)
		}
		first, second := made.Providers["origins-0"], made.Providers["origins-1"]
		if got := first.GetLocalJwks().GetInlineString(); got == `{"keys":[1]}` || first.Issuer == "" {
			t.Errorf("%s: tokens of %q are good by %s", name, first.Issuer, got)
		}
		if got := second.GetLocalJwks().GetInlineString(); second.Issuer != "z" || got != `{"keys":[1]}` {
			t.Errorf("%s: the other rule is %v", name, second)
		}
	}
}
