package access

import (
	"slices"
	"strconv"
	"strings"

	jwtv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/jwt_authn/v3"
)

// tokenPlace is a place of a request where a token may stand.
type tokenPlace struct {
	// name is the same for equal places.
	name string
	// look makes a provider look there alone.
	look func(p *jwtv3.JwtProvider)
}

// tokenPlaces are those where a provider looks: Envoy's own where it names none.
func tokenPlaces(p *jwtv3.JwtProvider) []tokenPlace {
	headers, params := p.FromHeaders, p.FromParams
	if len(headers)+len(params)+len(p.FromCookies) == 0 {
		headers, params = []*jwtv3.JwtHeader{{Name: "Authorization", ValuePrefix: "Bearer "}}, []string{"access_token"}
	}
	var out []tokenPlace
	for _, h := range headers {
		out = append(out, tokenPlace{"header " + strings.ToLower(h.Name) + " " + h.ValuePrefix,
			func(p *jwtv3.JwtProvider) { p.FromHeaders = []*jwtv3.JwtHeader{h} }})
	}
	for _, name := range params {
		out = append(out, tokenPlace{"parameter " + name, func(p *jwtv3.JwtProvider) { p.FromParams = []string{name} }})
	}
	for _, name := range p.FromCookies {
		out = append(out, tokenPlace{"cookie " + name, func(p *jwtv3.JwtProvider) { p.FromCookies = []string{name} }})
	}
	return out
}

// samePlaces says that all providers look at the same places.
func samePlaces(providers []*jwtv3.JwtProvider) bool {
	names := func(p *jwtv3.JwtProvider) []string {
		var out []string
		for _, place := range tokenPlaces(p) {
			out = append(out, place.name)
		}
		slices.Sort(out)
		return slices.Compact(out)
	}
	return !slices.ContainsFunc(providers, func(p *jwtv3.JwtProvider) bool {
		return !slices.Equal(names(p),
			names(providers[0]))
	})
}

// goodAtEachPlace wants each place where providers look for tokens to bear a good one or none: a
// good token at one must not bring in a bad one at another, which the workload may read. Nil where
// all look at the same places: there, one that accepts a request has accepted every token of it.
// The providers that it adds to f only look; what a token says is for the others to tell.
func goodAtEachPlace(f *jwtv3.JwtAuthentication, providers []*jwtv3.JwtProvider) []*jwtv3.JwtRequirement {
	if samePlaces(providers) {
		return nil
	}
	var places []string
	at := map[string][]string{} // who looks at each place
	for _, p := range providers {
		for _, place := range tokenPlaces(p) {
			looks := &jwtv3.JwtProvider{Issuer: p.Issuer, Audiences: p.Audiences, Forward: true,
				JwksSourceSpecifier: p.JwksSourceSpecifier}
			place.look(looks)
			name := "places-" + strconv.Itoa(len(f.Providers)-len(providers))
			f.Providers[name] = looks
			if at[place.name] == nil {
				places = append(places, place.name)
			}
			at[place.name] = append(at[place.name], name)
		}
	}
	out := make([]*jwtv3.JwtRequirement, 0, len(places)+1)
	for _, place := range places {
		out = append(out, oneOfTokens(at[place]))
	}
	return out
}
