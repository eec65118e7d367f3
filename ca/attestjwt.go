package ca

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc/codes"

	"github.com/ashore-mesh/ashore/internal/jwks"
	"github.com/ashore-mesh/ashore/internal/readfile"
	"github.com/ashore-mesh/ashore/internal/spiffe"
)

const (
	// maxJWT bounds a token, in bytes.
	maxJWT = 16 << 10
	// leeway is how much the clocks of issuers may differ from ours.
	leeway = 30 * time.Second
	// jwtRefresh is how often keys are read again: how long a new key of an issuer may be unknown.
	jwtRefresh = time.Minute
)

// Issuer is an issuer whose tokens are accepted.
type Issuer struct {
	// Name is the claim iss, exactly.
	Name string `yaml:"issuer"`
	// Audiences are those that a token may be for: one of them must be in the claim aud. Empty
	// means "istio-ca", as with Istio's agents.
	Audiences []string `yaml:"audiences"`
	// Keys is a file or a URL of its keys (JWKS). Empty: Name is an https:// URL, and OpenID Connect
	// Discovery finds them.
	Keys string `yaml:"jwks"`
}

// accountClaims are the claims with the identity: those of Kubernetes' tokens, or namespace and
// serviceAccount if a token has no claim kubernetes.io.
type accountClaims struct {
	Kubernetes *struct {
		Namespace      string `json:"namespace"`
		ServiceAccount struct {
			Name string `json:"name"`
		} `json:"serviceaccount"`
	} `json:"kubernetes.io"`
	Namespace      string `json:"namespace"`
	ServiceAccount string `json:"serviceAccount"`
}

// JWTConfig configures a JWTAttestor.
type JWTConfig struct {
	// Issuers have different names.
	Issuers []Issuer
	Ledger  *Ledger
	// Fetcher fetches the keys of issuers with a URL.
	Fetcher *jwks.Fetcher
	// Log receives failures to read keys.
	Log hclog.Logger
}

// JWTAttestor authenticates callers by OIDC tokens of issuers in the settings.
type JWTAttestor struct {
	ledger  *Ledger
	issuers []Issuer
	fetcher *jwks.Fetcher
	keys    *jwks.Refresher
}

// NewJWTAttestor makes one.
func NewJWTAttestor(c JWTConfig) *JWTAttestor {
	a := &JWTAttestor{ledger: c.Ledger, fetcher: c.Fetcher, issuers: slices.Clone(c.Issuers)}
	a.keys = jwks.NewRefresher(jwks.RefresherConfig{Fetch: a.load, Interval: jwtRefresh, Log: c.Log})
	timeouts := map[string]time.Duration{}
	for i := range a.issuers {
		s := &a.issuers[i]
		s.Keys = cmp.Or(s.Keys, strings.TrimSuffix(s.Name, "/")+jwks.DiscoveryPath)
		if len(s.Audiences) == 0 {
			s.Audiences = []string{"istio-ca"}
		}
		timeouts[s.Keys] = 0
	}
	a.keys.Want(timeouts)
	return a
}

// load reads keys from a file or a URL.
func (a *JWTAttestor) load(ctx context.Context, place string) (*jwks.Set, error) {
	if strings.Contains(place, "://") {
		return a.fetcher.Fetch(ctx, place)
	}
	text, _, err := readfile.Read(place, jwks.MaxBytes)
	if err != nil {
		return nil, err
	}
	set, err := jwks.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", place, err)
	}
	return set, nil
}

// Run reads the keys of all issuers again and again, until ctx ends. If some cannot be read, the
// last good ones stay.
func (a *JWTAttestor) Run(ctx context.Context) error {
	return a.keys.Run(ctx, func(context.Context, map[string]string) {})
}

// Failures are the keys that cannot be read now.
func (a *JWTAttestor) Failures() []jwks.Failure { return a.keys.Failures() }

// unknownKey is the reason of a refusal that a new key of an issuer causes, or a forged token.
const unknownKey = "jwt key unknown"

// parseJWT reads a token, and what it claims. Nothing is verified. Errors: *Refusal.
func parseJWT(bearer, how string) (token *jwt.JSONWebToken, claims jwt.Claims, err error) {
	if len(bearer) > maxJWT {
		return nil, claims, refusal(how, "jwt too large", "the token has %d bytes, at most %d are read",
			len(bearer), maxJWT)
	}
	token, err = jwt.ParseSigned(bearer, jwks.Algorithms())
	if err == nil {
		err = token.UnsafeClaimsWithoutVerification(&claims)
	}
	if err == nil && len(token.Headers) != 1 {
		err = fmt.Errorf("it has %d signatures", len(token.Headers))
	}
	if err != nil {
		return nil, claims, refusal(how, "jwt malformed", "%w", err)
	}
	return token, claims, nil
}

// index is the place of an issuer among those in the settings; -1 if it is not there.
func (a *JWTAttestor) index(issuer string) int {
	return slices.IndexFunc(a.issuers, func(s Issuer) bool { return s.Name == issuer })
}

// issued reports whether a token claims to be of an issuer in the settings.
func (a *JWTAttestor) issued(bearer string) bool {
	_, claims, err := parseJWT(bearer, byJWT)
	return err == nil && a.index(claims.Issuer) >= 0
}

// attest authenticates a caller by a JWT of an issuer. Errors: *Refusal.
func (a *JWTAttestor) attest(c Call) (*Proof, error) {
	token, claimed, err := parseJWT(c.Bearer, byJWT)
	if err != nil {
		return nil, err
	}
	i := a.index(claimed.Issuer)
	if i < 0 {
		return nil, refusal(byJWT, "jwt issuer", "the issuer %.200q is not in the settings", claimed.Issuer)
	}
	issuer := a.issuers[i]
	if err := a.verify(issuer, token, c.Now); err != nil {
		return nil, err
	}
	var claims accountClaims
	var id spiffe.ID
	err = token.UnsafeClaimsWithoutVerification(&claims) // they are verified
	if k := claims.Kubernetes; k != nil {
		claims.Namespace, claims.ServiceAccount = k.Namespace, k.ServiceAccount.Name
	}
	if err == nil {
		id, err = a.ledger.identity(claims.Namespace, claims.ServiceAccount)
	}
	if err != nil {
		return nil, refusal(byJWT, "jwt claims", "issuer %s: %w", issuer.Name, err)
	}
	return &Proof{ID: id, How: byJWT, Caller: accountCaller(id), from: c.From}, nil
}

// verify checks signature, times, issuer and audience. Errors: *Refusal.
func (a *JWTAttestor) verify(issuer Issuer, token *jwt.JSONWebToken, now time.Time) error {
	header := token.Headers[0]
	keys := a.keys.Set(issuer.Keys).Keys(header.KeyID, header.Algorithm)
	if len(keys) == 0 {
		return &Refusal{Code: codes.Unavailable, Reason: unknownKey,
			Public: "the keys of the token's issuer are being read; try again",
			Err:    fmt.Errorf("no key %.80q of issuer %s is known yet", header.KeyID, issuer.Name)}
	}
	for _, key := range keys {
		var std jwt.Claims
		if err := token.Claims(key, &std); err != nil {
			continue
		}
		want := jwt.Expected{Issuer: issuer.Name, AnyAudience: issuer.Audiences, Time: now}
		err := std.ValidateWithLeeway(want, leeway)
		if std.Expiry == nil {
			err = errors.New("it never expires: it has no claim exp")
		}
		if err != nil {
			return refusal(byJWT, "jwt claims", "the token of issuer %s for %.200q: %w", issuer.Name, std.Audience, err)
		}
		return nil
	}
	return refusal(byJWT, "jwt signature",
		"no key of issuer %s made the token's signature (key ID %.80q, algorithm %s)",
		issuer.Name, header.KeyID, header.Algorithm)
}

// accountCaller is what calls of a service account are counted by.
func accountCaller(id spiffe.ID) string { return "account " + id.String() }
