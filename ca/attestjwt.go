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
	// File or URL is where its keys stand (JWKS), one of them. Neither: an issuer whose name is an
	// https:// address tells where, as OpenID Connect Discovery says.
	File, URL string
	// Namespace and ServiceAccount are where in the token the identity stands, each a path of
	// claims. Empty means kubernetes.io → namespace and kubernetes.io → serviceaccount → name, as
	// in Kubernetes' tokens, or, where a token has no such claim, namespace and serviceAccount.
	Namespace, ServiceAccount []string
}

// JWTConfig says whose tokens are believed.
type JWTConfig struct {
	Issuers []Issuer
	Ledger  *Ledger
	// Fetcher gets the keys of issuers with a URL. Nil: one without exceptions.
	Fetcher *jwks.Fetcher
	// Log gets what is wrong with keys. Nil: nobody does.
	Log hclog.Logger
}

// JWTAttestor proves who calls by an OIDC token of an issuer of the settings.
type JWTAttestor struct {
	ledger  *Ledger
	issuers []Issuer // in the order of the settings
	fetcher *jwks.Fetcher
	keeper  *jwks.Keeper
	keys    atomic.Pointer[map[string]*jwks.Set] // by Issuer.place; nil until they were read once
}

// place is where an issuer's keys are: a URL or the path of a file.
func (s Issuer) place() string { return cmp.Or(s.URL, s.File) }

// jwtRefresh is how often keys are read again: how long a new key of an issuer may be unknown.
const jwtRefresh = time.Minute

// NewJWTAttestor makes one. Errors: an issuer that says too little, or too much.
func NewJWTAttestor(c JWTConfig) (*JWTAttestor, error) {
	a := &JWTAttestor{ledger: c.Ledger, fetcher: c.Fetcher}
	if a.fetcher == nil {
		a.fetcher = jwks.NewFetcher(jwks.Config{})
	}
	if c.Log == nil {
		c.Log = hclog.NewNullLogger()
	}
	for i, s := range c.Issuers {
		if err := a.add(s); err != nil {
			return nil, fmt.Errorf("issuer %d %q: %w", i+1, s.Name, err)
		}
	}
	a.keeper = jwks.NewKeeper(jwks.KeeperConfig{Fetch: a.load, Refresh: jwtRefresh, Log: c.Log})
	var places []string
	for _, s := range a.issuers {
		places = append(places, s.place())
	}
	a.keeper.Want(places)
	return a, nil
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

// Run reads the keys of all issuers, again and again, until ctx ends. Where they cannot be read, the
// last good ones stay.
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

// set is the keys of an issuer, nil when they were not read yet.
func (a *JWTAttestor) set(s Issuer) *jwks.Set {
	if keys := a.keys.Load(); keys != nil {
		return (*keys)[s.place()]
	}
	return nil
}

// IssuerFailure is an issuer whose keys cannot be read.
type IssuerFailure struct {
	Issuer string
	Err    error
	// Kept says that those that were read last stay in use; else no token of the issuer is
	// accepted.
	Kept bool
}

// Failures are the issuers whose keys cannot be read now, in the order of the settings.
func (a *JWTAttestor) Failures() []IssuerFailure {
	var out []IssuerFailure
	failures := a.keeper.Failures()
	for _, s := range a.issuers {
		for _, f := range failures {
			if f.URL == s.place() {
				out = append(out, IssuerFailure{Issuer: s.Name, Err: f.Err, Kept: f.Kept})
			}
		}
	}
	return out
}

// named is the issuer with a name.
func (a *JWTAttestor) named(name string) (Issuer, bool) {
	i := slices.IndexFunc(a.issuers, func(s Issuer) bool { return s.Name == name })
	if i < 0 {
		return Issuer{}, false
	}
	return a.issuers[i], true
}

func (a *JWTAttestor) add(s Issuer) error {
	if s.File == "" && s.URL == "" && strings.HasPrefix(s.Name, "https://") {
		s.URL = strings.TrimSuffix(s.Name, "/") + jwks.DiscoveryPath
	}
	_, twice := a.named(s.Name)
	switch {
	case s.Name == "":
		return errors.New("it has no name: give what its tokens say as iss")
	case (s.File == "") == (s.URL == ""):
		return errors.New("its keys need either a file or a URL, unless its name is an https:// address that tells " +
			"where they are")
	case (len(s.Namespace) == 0) != (len(s.ServiceAccount) == 0):
		return errors.New("the claims of namespace and service account go together")
	case twice:
		return errors.New("it is there twice")
	}
	if s.URL != "" {
		if err := a.fetcher.Check(s.URL); err != nil {
			return err
		}
	}
	if len(s.Audiences) == 0 {
		s.Audiences = []string{"istio-ca"}
	}
	a.issuers = append(a.issuers, s)
	return nil
}

// unknownKey is the reason of a refusal that a new key of an issuer causes, or a token that anybody
// made up.
const unknownKey = "jwt key unknown"

// refuseJWT is a refusal whose caller learns nothing.
func refuseJWT(reason string, err error) *Refusal {
	return &Refusal{Code: codes.Unauthenticated, Public: publicJWT, Reason: reason, Err: err}
}

// attest proves who calls by a token of an issuer. Errors: *Refusal.
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
	issuer, ok := a.named(hint.Issuer)
	if !ok {
		return nil, refuseJWT("jwt issuer", fmt.Errorf("the issuer %.200q is not in the settings", hint.Issuer))
	}
	claims, err := a.verify(issuer, token, c.Now)
	if err != nil {
		return nil, err
	}
	id, err := a.identity(issuer, claims)
	if err != nil {
		return nil, refuseJWT("jwt claims", fmt.Errorf("issuer %s: %w", issuer.Name, err))
	}
	p := &Proof{ID: id, How: byJWT, Caller: accountCaller(id), from: c.From}
	// A service account has many machines. Its workloads are told apart by the pods that their tokens
	// name, so that a new key is the same workload, or else by their first keys.
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
	set := a.set(issuer)
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
