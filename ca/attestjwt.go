package ca

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc/codes"

	"github.com/ashore-mesh/ashore/internal/dnsname"
	"github.com/ashore-mesh/ashore/internal/jwks"
	"github.com/ashore-mesh/ashore/internal/readfile"
	"github.com/ashore-mesh/ashore/internal/spiffe"
)

const (
	// maxJWT bounds a token, in bytes.
	maxJWT = 16 << 10
	// leeway is how much clocks of issuers may differ from ours.
	leeway = 30 * time.Second
)

// Issuer is somebody whose tokens are believed.
type Issuer struct {
	// Name is the claim iss, exactly.
	Name string
	// Audiences are those that a token may be for: one of them must be in the claim aud. Empty
	// means "istio-ca", as with Istio's agents.
	Audiences []string
	// Keys is where its keys stand (JWKS): a file or a URL. Empty: the issuer's name is an https://
	// address that tells where, as OpenID Connect Discovery says.
	Keys string
	// Namespace and ServiceAccount are where in the token the identity stands, each a path of
	// claims. Empty means kubernetes.io → namespace and kubernetes.io → serviceaccount → name, as
	// in Kubernetes' tokens, or, where a token has no such claim, namespace and serviceAccount.
	Namespace, ServiceAccount []string
}

// JWTConfig says whose tokens are believed.
type JWTConfig struct {
	// Issuers have different names.
	Issuers []Issuer
	Ledger  *Ledger
	// Fetcher gets the keys of issuers with a URL.
	Fetcher *jwks.Fetcher
	// Log gets what is wrong with keys.
	Log hclog.Logger
}

// JWTAttestor proves who calls by an OIDC token of an issuer of the settings.
type JWTAttestor struct {
	ledger  *Ledger
	issuers []Issuer // in the order of the settings
	fetcher *jwks.Fetcher
	keeper  *jwks.Keeper
	keys    atomic.Pointer[map[string]*jwks.Set] // by Issuer.Keys
}

// jwtRefresh is how often keys are read again: how long a new key of an issuer may be unknown.
const jwtRefresh = time.Minute

// NewJWTAttestor makes one.
func NewJWTAttestor(c JWTConfig) *JWTAttestor {
	a := &JWTAttestor{ledger: c.Ledger, fetcher: c.Fetcher, issuers: slices.Clone(c.Issuers)}
	a.keys.Store(&map[string]*jwks.Set{})
	a.keeper = jwks.NewKeeper(jwks.KeeperConfig{Fetch: a.load, Refresh: jwtRefresh, Log: c.Log})
	var places []string
	for i := range a.issuers {
		s := &a.issuers[i]
		s.Keys = cmp.Or(s.Keys, strings.TrimSuffix(s.Name, "/")+jwks.DiscoveryPath)
		if len(s.Audiences) == 0 {
			s.Audiences = []string{"istio-ca"}
		}
		places = append(places, s.Keys)
	}
	a.keeper.Want(places)
	return a
}

// load reads keys from a place.
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

// Run reads the keys of all issuers, again and again, until ctx ends. Where they cannot be read,
// the last good ones stay.
func (a *JWTAttestor) Run(ctx context.Context) error {
	return a.keeper.Run(ctx, func(_ context.Context, texts map[string]string) {
		keys := map[string]*jwks.Set{}
		for place, text := range texts {
			if set, err := jwks.Parse([]byte(text)); err == nil { // it was read before
				keys[place] = set
			}
		}
		a.keys.Store(&keys)
	})
}

// Failures are the places whose keys cannot be read now.
func (a *JWTAttestor) Failures() []jwks.Failure { return a.keeper.Failures() }

// unknownKey is the reason of a refusal that a new key of an issuer causes, or a token that anybody
// made up.
const unknownKey = "jwt key unknown"

// refuseJWT is a refusal whose caller learns nothing.
func refuseJWT(reason string, err error) *Refusal {
	return &Refusal{Code: codes.Unauthenticated, Public: publicJWT, Reason: reason, Err: err}
}

// attest authenticates a caller by a JWT of an issuer. Errors: *Refusal.
func (a *JWTAttestor) attest(c Call) (*Proof, error) {
	if len(c.Bearer) > maxJWT {
		return nil, refuseJWT("jwt too large", fmt.Errorf("the token has %d bytes, at most %d are read", len(c.Bearer),
			maxJWT))
	}
	token, err := jwt.ParseSigned(c.Bearer, jwks.Algorithms())
	if err != nil {
		return nil, refuseJWT("jwt malformed", err)
	}
	var hint jwt.Claims // says only which keys to try
	if err := token.UnsafeClaimsWithoutVerification(&hint); err != nil {
		return nil, refuseJWT("jwt malformed", err)
	}
	i := slices.IndexFunc(a.issuers, func(s Issuer) bool { return s.Name == hint.Issuer })
	if i < 0 {
		return nil, refuseJWT("jwt issuer", fmt.Errorf("the issuer %.200q is not in the settings", hint.Issuer))
	}
	issuer := a.issuers[i]
	claims, err := a.verify(issuer, token, c.Now)
	if err != nil {
		return nil, err
	}
	id, err := a.identity(issuer, claims)
	if err != nil {
		return nil, refuseJWT("jwt claims", fmt.Errorf("issuer %s: %w", issuer.Name, err))
	}
	p := &Proof{ID: id, How: byJWT, Caller: accountCaller(id), from: c.From}
	// A service account has many machines. Its workloads are told apart by the pods that their
	// tokens name, so that a new key is the same workload, or else by their first keys.
	if pod := a.podOf(issuer, claims); pod != "" {
		p.name = id.Namespace + "/" + id.ServiceAccount + accountSign + pod
	}
	return p, nil
}

// verify checks signature, times, issuer and audience, and returns all claims.
func (a *JWTAttestor) verify(issuer Issuer, token *jwt.JSONWebToken, now time.Time) (map[string]any, error) {
	if len(token.Headers) != 1 {
		return nil, refuseJWT("jwt malformed", fmt.Errorf("it has %d signatures", len(token.Headers)))
	}
	header := token.Headers[0]
	set := (*a.keys.Load())[issuer.Keys]
	if set == nil || header.KeyID != "" && !set.Has(header.KeyID) {
		reason := "jwt keys not read"
		if set != nil {
			reason = unknownKey
		}
		return nil, &Refusal{Code: codes.Unavailable,
			Public: "the keys of the token's issuer are being read; try again", Reason: reason,
			Err: fmt.Errorf("no key %.80q of issuer %s is known yet", header.KeyID, issuer.Name)}
	}
	for _, key := range set.Keys(header.KeyID, header.Algorithm) {
		var std jwt.Claims
		var all map[string]any
		if err := token.Claims(key, &std, &all); err != nil {
			continue
		}
		if std.Expiry == nil {
			return nil, refuseJWT("jwt claims", errors.New("the token never ends: it has no claim exp"))
		}
		want := jwt.Expected{Issuer: issuer.Name, AnyAudience: issuer.Audiences, Time: now}
		if err := std.ValidateWithLeeway(want, leeway); err != nil {
			return nil, refuseJWT("jwt claims", fmt.Errorf("the token of issuer %s for %.200q: %w", issuer.Name,
				std.Audience, err))
		}
		return all, nil
	}
	return nil, refuseJWT("jwt signature",
		fmt.Errorf("no key of issuer %s made the token's signature (key ID %.80q, algorithm %s)", issuer.Name,
			header.KeyID, header.Algorithm))
}

// identity is the one that claims name.
func (a *JWTAttestor) identity(issuer Issuer, claims map[string]any) (spiffe.ID, error) {
	namespace, account := issuer.Namespace, issuer.ServiceAccount
	if len(namespace) == 0 {
		namespace, account = []string{"kubernetes.io", "namespace"}, []string{"kubernetes.io", "serviceaccount", "name"}
		if _, ok := claims["kubernetes.io"]; !ok {
			namespace, account = []string{"namespace"}, []string{"serviceAccount"}
		}
	}
	n, err := claim(claims, namespace)
	if err != nil {
		return spiffe.ID{}, err
	}
	s, err := claim(claims, account)
	if err != nil {
		return spiffe.ID{}, err
	}
	return a.ledger.identity(n, s)
}

// claim is the text at a path of claims.
func claim(claims map[string]any, path []string) (string, error) {
	var at any = claims
	for _, p := range path {
		m, ok := at.(map[string]any)
		if !ok {
			return "", fmt.Errorf("the token has no claim %s", strings.Join(path, " → "))
		}
		at = m[p]
	}
	s, ok := at.(string)
	if !ok || s == "" {
		return "", fmt.Errorf("the token has no text in the claim %s", strings.Join(path, " → "))
	}
	return s, nil
}

// accountCaller is what calls of a service account are counted by.
func accountCaller(id spiffe.ID) string { return "account " + id.String() }

// maxPod bounds the name of a pod that is taken into that of a workload.
const maxPod = 100

// podOf is the pod that a token of Kubernetes is bound to, or empty. Those of several issuers,
// which may be called alike, are told apart.
func (a *JWTAttestor) podOf(issuer Issuer, claims map[string]any) string {
	if len(issuer.Namespace) > 0 {
		return ""
	}
	pod, err := claim(claims, []string{"kubernetes.io", "pod", "name"})
	if err != nil || len(pod) > maxPod || !dnsname.Valid(pod) {
		return ""
	}
	if len(a.issuers) > 1 {
		sum := sha256.Sum256([]byte(issuer.Name))
		pod += accountSign + hex.EncodeToString(sum[:4])
	}
	return pod
}
