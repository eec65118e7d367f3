package ca

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc/codes"

	"github.com/ashore-mesh/ashore/internal/dnsname"
	"github.com/ashore-mesh/ashore/internal/jwks"
	"github.com/ashore-mesh/ashore/internal/spiffe"
)

// jwtAttestor is its name.
const jwtAttestor = "jwt"

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
	// Refresh is how often keys are read again. Zero means 5m.
	Refresh time.Duration
	// Log gets what is wrong with keys. Nil: nobody does.
	Log hclog.Logger
}

// JWTAttestor proves who calls by an OIDC token of an issuer of the settings.
type JWTAttestor struct {
	ledger  *Ledger
	issuers map[string]*issuerKeys // by name
	order   []*issuerKeys
	fetcher *jwks.Fetcher
	refresh time.Duration
	log     hclog.Logger

	wake chan struct{} // cap 1; written by Attest, read by Run: a token has a key that nobody knows yet
}

// issuerKeys is an issuer with its keys.
type issuerKeys struct {
	Issuer
	keys atomic.Pointer[jwks.Set] // nil until they were read once; the last good ones after that
	last string                   // what was wrong last; only Run touches it

	failed atomic.Pointer[error] // why they cannot be read now; nil: they can, or were not tried yet
}

// NewJWTAttestor makes one. Errors: an issuer that says too little, or too much.
func NewJWTAttestor(c JWTConfig) (*JWTAttestor, error) {
	a := &JWTAttestor{ledger: c.Ledger, issuers: map[string]*issuerKeys{}, fetcher: c.Fetcher, refresh: c.Refresh,
		log: c.Log, wake: make(chan struct{}, 1)}
	if a.fetcher == nil {
		a.fetcher = jwks.NewFetcher(jwks.Config{})
	}
	if a.refresh == 0 {
		a.refresh = 5 * time.Minute
	}
	if a.log == nil {
		a.log = hclog.NewNullLogger()
	}
	for i, s := range c.Issuers {
		if err := a.add(s); err != nil {
			return nil, fmt.Errorf("issuer %d %q: %w", i+1, s.Name, err)
		}
	}
	return a, nil
}

func (a *JWTAttestor) add(s Issuer) error {
	if s.File == "" && s.URL == "" && strings.HasPrefix(s.Name, "https://") {
		s.URL = strings.TrimSuffix(s.Name, "/") + jwks.DiscoveryPath
	}
	switch {
	case s.Name == "":
		return errors.New("it has no name: give what its tokens say as iss")
	case (s.File == "") == (s.URL == ""):
		return errors.New("its keys need either a file or a URL, unless its name is an https:// address that tells where they are")
	case (len(s.Namespace) == 0) != (len(s.ServiceAccount) == 0):
		return errors.New("the claims of namespace and service account go together")
	case a.issuers[s.Name] != nil:
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
	k := &issuerKeys{Issuer: s}
	a.issuers[s.Name] = k
	a.order = append(a.order, k)
	return nil
}

// Name implements Attestor.
func (*JWTAttestor) Name() string { return jwtAttestor }

// unknownKey is the reason of a refusal that a new key of an issuer causes, or a token that anybody
// made up.
const unknownKey = "jwt key unknown"

// refuseJWT is a refusal whose caller learns nothing.
func refuseJWT(reason string, err error) *Refusal {
	return &Refusal{Code: codes.Unauthenticated, Public: publicJWT, Reason: reason, Err: err}
}

// Attest implements Attestor.
func (a *JWTAttestor) Attest(_ context.Context, c Call) (*Proof, error) {
	if c.Bearer == "" || isToken(c.Bearer) || len(a.issuers) == 0 {
		return nil, ErrNotMine
	}
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
	issuer := a.issuers[hint.Issuer]
	if issuer == nil {
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
	return a.proof(id, a.podOf(issuer, claims)), nil
}

// verify checks signature, times, issuer and audience, and returns all claims.
func (a *JWTAttestor) verify(issuer *issuerKeys, token *jwt.JSONWebToken, now time.Time) (map[string]any, error) {
	if len(token.Headers) != 1 {
		return nil, refuseJWT("jwt malformed", fmt.Errorf("it has %d signatures", len(token.Headers)))
	}
	header := token.Headers[0]
	set := issuer.keys.Load()
	if set == nil || header.KeyID != "" && !set.Has(header.KeyID) {
		a.poke()
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
func (a *JWTAttestor) identity(issuer *issuerKeys, claims map[string]any) (spiffe.ID, error) {
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

// proof is who a token proves. A service account has many machines: its workloads are told apart by
// the pods that their tokens name, so that a new key is the same workload, or else by their first
// keys.
func (a *JWTAttestor) proof(id spiffe.ID, pod string) *Proof {
	p := &Proof{ID: id, How: jwtAttestor, Caller: accountCaller(id)}
	account := id.Namespace + "/" + id.ServiceAccount
	p.Bind = func(ctx context.Context, q Ask) (string, error) {
		if pod != "" {
			return account + accountSign + pod, nil
		}
		k, version, err := a.ledger.holder(ctx, q.Key.String())
		if err != nil {
			return "", err
		}
		if version != "" && strings.HasPrefix(k.Workload, account+accountSign) {
			return k.Workload, nil
		}
		return account + accountSign + hex.EncodeToString(q.Key[:keyNameSize]), a.ledger.mayAdd(ctx, account)
	}
	return p
}

// accountCaller is what calls of a service account are counted by.
func accountCaller(id spiffe.ID) string { return "account " + id.String() }

// maxPod bounds the name of a pod that is taken into that of a workload. keyNameSize is how many
// bytes of a key's hash are.
const maxPod, keyNameSize = 100, 8

// podOf is the pod that a token of Kubernetes is bound to, or empty. Those of several issuers,
// which may be called alike, are told apart.
func (a *JWTAttestor) podOf(issuer *issuerKeys, claims map[string]any) string {
	if len(issuer.Namespace) > 0 {
		return ""
	}
	pod, err := claim(claims, []string{"kubernetes.io", "pod", "name"})
	if err != nil || len(pod) > maxPod || !dnsname.Valid(pod) {
		return ""
	}
	if len(a.order) > 1 {
		sum := sha256.Sum256([]byte(issuer.Name))
		pod += accountSign + hex.EncodeToString(sum[:4])
	}
	return pod
}

// poke has keys read again, soon.
func (a *JWTAttestor) poke() {
	select {
	case a.wake <- struct{}{}:
	default: // Run has word already
	}
}
