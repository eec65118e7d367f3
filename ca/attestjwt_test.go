package ca

import (
	"context"
	"crypto/ecdsa"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"google.golang.org/grpc/codes"

	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/testlog"
)

// idp is an issuer of tokens.
type idp struct {
	t    testing.TB
	key  *ecdsa.PrivateKey
	file string
}

func newIDP(t testing.TB) *idp {
	t.Helper()
	p := &idp{t: t, key: NewKey(), file: filepath.Join(t.TempDir(), "jwks.json")}
	p.publish("a")
	return p
}

// publish writes the key under an ID.
func (p *idp) publish(id string) {
	p.t.Helper()
	text, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: &p.key.PublicKey, KeyID: id}}})
	if err == nil {
		err = os.WriteFile(p.file, text, 0o600)
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// sign makes a token.
func (p *idp) sign(id string, claims map[string]any) string {
	p.t.Helper()
	return signJWT(p.t, jose.SigningKey{Algorithm: jose.ES256, Key: p.key}, id, claims)
}

func signJWT(t testing.TB, key jose.SigningKey, id string, claims map[string]any) string {
	t.Helper()
	s, err := jose.NewSigner(key, (&jose.SignerOptions{}).WithHeader("kid", id))
	if err != nil {
		t.Fatal(err)
	}
	out, err := jwt.Signed(s).Claims(claims).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// good are claims of a token that is believed; change replaces some, and nil takes one away.
func good(change map[string]any) map[string]any {
	out := map[string]any{
		"iss": "https://idp", "aud": []string{"istio-ca"}, "exp": noon.Add(time.Hour).Unix(), "iat": noon.Unix(), "nbf": noon.Unix(),
		"kubernetes.io": map[string]any{"namespace": "shop", "serviceaccount": map[string]any{"name": "web"}},
	}
	for k, v := range change {
		if out[k] = v; v == nil {
			delete(out, k)
		}
	}
	return out
}

func (l *lab) jwt(issuers ...Issuer) *JWTAttestor {
	return NewJWTAttestor(JWTConfig{Issuers: issuers, Ledger: l.ledger, Log: testlog.New(l.t)})
}

// newJWT is an attestor that has read its keys.
func (l *lab) newJWT(issuers ...Issuer) *JWTAttestor {
	l.t.Helper()
	a := l.jwt(issuers...)
	ctx, cancel := context.WithCancel(l.t.Context())
	if err := a.keys.Run(ctx, func(context.Context, map[string]string) { cancel() }); err != nil {
		l.t.Fatal(err)
	}
	if f := a.Failures(); len(f) > 0 {
		l.t.Fatal(f)
	}
	return a
}

// A token is believed when its issuer, signature, times, audience and claims are right, and only
// then.
func TestJWT(t *testing.T) {
	t.Parallel()
	l, p := newLab(t, nil), newIDP(t)
	a := l.newJWT(Issuer{Name: "https://idp", Keys: p.file})
	other := newIDP(t)
	hmac := jose.SigningKey{Algorithm: jose.HS256, Key: []byte("0123456789abcdef0123456789abcdef")}
	for name, tc := range map[string]struct {
		token string
		want  string // the reason of the refusal, or none
	}{
		"good":             {p.sign("a", good(nil)), ""},
		"without key ID":   {p.sign("", good(nil)), ""},
		"several audience": {p.sign("a", good(map[string]any{"aud": []string{"x", "istio-ca"}})), ""},
		"plain claims":     {p.sign("a", good(map[string]any{"kubernetes.io": nil, "namespace": "shop", "serviceAccount": "web"})), ""},
		"clock a bit off":  {p.sign("a", good(map[string]any{"nbf": noon.Add(20 * time.Second).Unix()})), ""},
		"expired":          {p.sign("a", good(map[string]any{"exp": noon.Add(-time.Minute).Unix()})), "jwt claims"},
		"never ends":       {p.sign("a", good(map[string]any{"exp": nil})), "jwt claims"},
		"not yet":          {p.sign("a", good(map[string]any{"nbf": noon.Add(time.Minute).Unix()})), "jwt claims"},
		"from the future":  {p.sign("a", good(map[string]any{"iat": noon.Add(time.Minute).Unix()})), "jwt claims"},
		"other audience":   {p.sign("a", good(map[string]any{"aud": "x"})), "jwt claims"},
		"no audience":      {p.sign("a", good(map[string]any{"aud": nil})), "jwt claims"},
		"other issuer":     {p.sign("a", good(map[string]any{"iss": "https://evil"})), "jwt issuer"},
		"no issuer":        {p.sign("a", good(map[string]any{"iss": nil})), "jwt issuer"},
		"no identity":      {p.sign("a", good(map[string]any{"kubernetes.io": nil})), "jwt claims"},
		"half an identity": {p.sign("a", good(map[string]any{"kubernetes.io": map[string]any{"namespace": "shop"}})), "jwt claims"},
		"mixed identity":   {p.sign("a", good(map[string]any{"kubernetes.io": 1, "namespace": "shop", "serviceAccount": "web"})), "jwt claims"},
		"a path":           {p.sign("a", good(map[string]any{"kubernetes.io": nil, "namespace": "shop/sa/root", "serviceAccount": "x"})), "jwt claims"},
		"a number":         {p.sign("a", good(map[string]any{"kubernetes.io": nil, "namespace": 1, "serviceAccount": "x"})), "jwt claims"},
		"unknown key":      {p.sign("b", good(nil)), "jwt key unknown"},
		"forged":           {other.sign("a", good(nil)), "jwt signature"},
		"shared key":       {signJWT(t, hmac, "a", good(nil)), "jwt malformed"},
		"no algorithm":     {"eyJhbGciOiJub25lIn0." + strings.Split(p.sign("a", good(nil)), ".")[1] + ".", "jwt malformed"},
		"cut":              {p.sign("a", good(nil))[:50], "jwt malformed"},
		"no token":         {"hello", "jwt malformed"},
		"large":            {strings.Repeat("x", maxJWT+1), "jwt too large"},
	} {
		proof, err := a.attest(Call{Bearer: tc.token, Now: noon})
		if tc.want == "" {
			if err != nil || proof.ID != web(t) || proof.How != "jwt" {
				t.Errorf("%s: got %+v, error %v", name, proof, err)
			}
			continue
		}
		if r, ok := errors.AsType[*Refusal](err); !ok || r.Reason != tc.want {
			t.Errorf("%s: got %v, want %s", name, err, tc.want)
		}
	}
}

// Audiences of the settings replace the usual one.
func TestJWTAudience(t *testing.T) {
	t.Parallel()
	l, p := newLab(t, nil), newIDP(t)
	a := l.newJWT(Issuer{Name: "https://idp", Keys: p.file, Audiences: []string{"mesh"}})
	if _, err := a.attest(Call{Bearer: p.sign("a", good(map[string]any{"aud": "mesh"})), Now: noon}); err != nil {
		t.Error(err)
	}
	if _, err := a.attest(Call{Bearer: p.sign("a", good(nil)), Now: noon}); err == nil {
		t.Error("an audience that the settings do not name is accepted")
	}
}

// New keys are read from time to time; keys that cannot be read
// leave the last good ones.
func TestJWTKeysAreReadAgain(t *testing.T) {
	t.Parallel()
	p := newIDP(t)
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, nil)
		a := l.jwt(Issuer{Name: "https://idp", Keys: p.file})
		knows := func(id string) bool {
			_, err := a.attest(Call{Bearer: p.sign(id, good(nil)), Now: noon})
			if r, ok := errors.AsType[*Refusal](err); ok && r.Code != codes.Unavailable {
				t.Errorf("got %v", err)
			}
			return err == nil
		}
		if knows("a") {
			t.Error("a token is believed before keys were read")
		}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := a.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		if !knows("a") {
			t.Error("keys are not read at the start")
		}
		p.publish("b")
		if knows("b") {
			t.Error("keys are read all the time")
		}
		time.Sleep(jwtRefresh)
		synctest.Wait()
		if !knows("b") || knows("a") {
			t.Error("keys are not read again")
		}
		if err := os.WriteFile(p.file, []byte("broken"), 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if !knows("b") {
			t.Error("the last good keys are gone")
		}
		cancel()
		wg.Wait()
	})
}

// Istio's agents join by a JWT, each key a workload of its own, and renew by certificate; revoking
// the identity ends both.
func TestJWTJoins(t *testing.T) {
	t.Parallel()
	p := newIDP(t)
	l := newLab(t, nil)
	a := l.newJWT(Issuer{Name: "https://idp", Keys: p.file})
	l.server.config.JWT = a
	l.serve()
	c := client{token: p.sign("a", good(nil)), key: NewKey()}
	first, _, err := l.ask(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.audited(audit.CertificateIssue, "shop/web~"); err != nil {
		t.Error(err)
	}
	if got := WorkloadName(first.Leaf); got != "" {
		t.Errorf("the certificate names %q, which another key would change", got)
	}
	if _, _, err := l.ask(c); err != nil {
		t.Errorf("the same key again: %v", err)
	}
	if _, _, err := l.ask(client{token: c.token}); err != nil {
		t.Errorf("another machine: %v", err)
	}
	second, _, err := l.ask(client{cert: first, token: c.token})
	if err != nil {
		t.Fatal(err)
	}
	if all, err := l.ledger.Workloads(t.Context()); err != nil || len(all) != 2 {
		t.Errorf("the ledger has %d workloads, want 2; error %v", len(all), err)
	}
	l.revoke(web(t).String())
	for name, c := range map[string]client{"JWT": {token: c.token}, "certificate": {cert: second},
		"both": {cert: second, token: c.token}} {
		if _, _, err := l.ask(c); err == nil {
			t.Errorf("%s: a revoked identity gets a certificate", name)
		}
	}
}

// A service account is one caller, however many workloads it makes with keys of its own.
func TestJWTAccountIsOneCaller(t *testing.T) {
	t.Parallel()
	p, l := newIDP(t), newLab(t, nil)
	a := l.newJWT(Issuer{Name: "https://idp", Keys: p.file})
	l.server.config.JWT = a
	l.serve()
	token := p.sign("a", good(nil))
	cert, _, err := l.ask(client{token: token})
	if err != nil {
		t.Fatal(err)
	}
	joins, err := a.attest(Call{Bearer: token, Now: noon})
	if err != nil {
		t.Fatal(err)
	}
	renews, err := l.peers.attest(t.Context(),
		Call{Peer: chainOf(t, cert), Now: noon})
	if err != nil {
		t.Fatal(err)
	}
	if joins.Caller != renews.Caller {
		t.Errorf("an account is %q when it joins and %q when it renews", joins.Caller, renews.Caller)
	}
}

// Whoever has a token of a service account cannot fill the index by making keys; those that are known
// go on, and time makes room.
func TestJWTRecordsAreBounded(t *testing.T) {
	t.Parallel()
	p, l := newIDP(t), newLab(t, nil)
	l.server.config.JWT = l.newJWT(Issuer{Name: "https://idp", Keys: p.file})
	l.serve()
	first := client{token: p.sign("a", good(nil)), key: NewKey()}
	if _, _, err := l.ask(first); err != nil {
		t.Fatal(err)
	}
	for ok := true; ok; {
		ok, _ = l.ledger.newKeys.Allow("shop/web", l.now())
	}
	other := client{token: first.token, key: NewKey()}
	_, _, err := l.ask(other)
	if err := wantRefused(err, codes.ResourceExhausted, "too many workloads of this service account"); err != nil {
		t.Error(err)
	}
	if err := l.audited(audit.CertificateRefuse, "too many keys"); err != nil {
		t.Error(err)
	}
	if _, _, err := l.ask(first); err != nil {
		t.Errorf("one that is known: %v", err)
	}
	l.pass(newKeyEvery)
	if _, _, err := l.ask(other); err != nil {
		t.Errorf("after a while: %v", err)
	}
}

// An issuer without a place for its keys is asked where they are.
func TestJWTDiscovery(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"https://idp": "https://idp/.well-known/openid-configuration",
		"https://idp/": "https://idp/.well-known/openid-configuration"} {
		if got := newLab(t, nil).jwt(Issuer{Name: name}).issuers[0].Keys; got != want {
			t.Errorf("%s: keys are at %s, want %s", name, got, want)
		}
	}
}
