package config

import (
	"net/url"
	"slices"
	"strings"

	security "istio.io/api/security/v1beta1"

	"github.com/ashore-mesh/ashore/internal/jwks"
)

// requestAuthentication checks which tokens requests may bear.
func (c *checker) requestAuthentication(s *security.RequestAuthentication) {
	if len(s.JwtRules) == 0 {
		c.warnf("spec.jwtRules", "there are no rules, so that no token is looked at: write some, or remove the object")
	}
}

// jwtRule checks the tokens of one issuer.
func (c *checker) jwtRule(path string, r *security.JWTRule) {
	if r.Issuer == "" && r.JwksUri == "" {
		c.errorf(path+".issuer", "the issuer is missing: write what tokens have as iss, or jwksUri for tokens of any issuer")
	}
	c.jwtKeys(path, r)
	seen := map[string]int{}
	for i, o := range r.OutputClaimToHeaders {
		name := strings.ToLower(o.GetHeader())
		if j, twice := seen[name]; twice {
			c.errorf(at(path+".outputClaimToHeaders", i)+".header", "duplicate of item %d: a claim needs one of its own", j)
		}
		seen[name] = i
	}
}

// checkFilled is the rule for any text that is not empty.
func checkFilled(text string) string {
	if text == "" {
		return "the text is empty: write it, or remove the item"
	}
	return ""
}

// jwtKeys checks where the keys of an issuer are from.
// Source: istio.io, JWTRule: without either field, the issuer tells by OpenID Connect Discovery.
func (c *checker) jwtKeys(path string, r *security.JWTRule) {
	switch {
	case r.Jwks != "" && r.JwksUri != "":
		c.errorf(path+".jwks", "jwksUri is written too: keep one of the two")
	case r.Jwks != "":
		if _, err := jwks.Parse([]byte(r.Jwks)); err != nil {
			c.errorf(path+".jwks", "%s", err)
		}
	case r.JwksUri != "":
		c.keyURL(path+".jwksUri", r.JwksUri, "is not a URL: write https://host/path")
	case r.Issuer != "" && !strings.Contains(r.Issuer, "://"):
		c.warnf(path, "%s is no URL that could tell its keys, so that no token is accepted: write jwksUri or jwks",
			quote(r.Issuer))
	case r.Issuer != "":
		c.keyURL(path, r.Issuer, "is no URL that could tell its keys: write jwksUri or jwks")
	}
}

// keyURL checks a URL that the control plane fetches. Its settings say where it fetches keys
// without TLS.
func (c *checker) keyURL(path, text, otherwise string) {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Hostname() == "" || u.Scheme != "https" && u.Scheme != "http":
		c.errorf(path, "%s %s", quote(text), otherwise)
	case u.User != nil:
		c.errorf(path, "a user or password does not belong in a URL that everybody can read")
	case u.Scheme == "http":
		c.warnf(path, "keys are fetched over http only from an IP address in the setting fetch.allow; else no token is "+
			"accepted: write https")
	}
}

// claimPrefix begins the names of matches by a claim of the request's token.
const claimPrefix = "@request.auth.claims"

// checkClaim is the rule for the name of a match by the request's token.
// Source: istio.io, "JWT claim based routing".
func checkClaim(name string) string {
	const form = ": write @request.auth.claims.NAME, with a dot before each name within it, or @request.auth.claims[NAME][WITHIN] where names hold dots"
	rest, ok := strings.CutPrefix(name, claimPrefix)
	var parts []string
	switch {
	case ok && strings.HasPrefix(rest, "."):
		parts = strings.Split(rest[1:], ".")
	case ok && strings.HasPrefix(rest, "[") && strings.HasSuffix(rest, "]"):
		parts = strings.Split(rest[1:len(rest)-1], "][")
	default:
		return quote(name) + " names no claim of a token" + form
	}
	if slices.Contains(parts, "") {
		return quote(name) + " has an empty name" + form
	}
	return ""
}
