package jwks

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"
)

// document encodes keys.
func document(t testing.TB, keys ...jose.JSONWebKey) []byte {
	t.Helper()
	out, err := json.Marshal(jose.JSONWebKeySet{Keys: keys})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func ecKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// Keys are found by ID and by what they are made for.
func TestKeys(t *testing.T) {
	t.Parallel()
	ed, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Parse(document(t,
		jose.JSONWebKey{Key: &ecKey(t).PublicKey, KeyID: "a", Algorithm: "ES256", Use: "sig"},
		jose.JSONWebKey{Key: &ecKey(t).PublicKey, KeyID: "b"},
		jose.JSONWebKey{Key: ed, KeyID: "c", Algorithm: "EdDSA"},
		jose.JSONWebKey{Key: &ecKey(t).PublicKey, KeyID: "d", Use: "enc"},
	))
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		id, algorithm string
		want          int
	}{{"a", "ES256", 1}, {"a", "EdDSA", 0}, {"b", "ES256", 1}, {"c", "EdDSA", 1}, {"d", "ES256", 0}, {"", "ES256",
		2}, {"x", "ES256", 0}} {
		if got := s.Keys(tc.id, tc.algorithm); len(got) != tc.want {
			t.Errorf("%s %s: got %d keys, want %d", tc.id, tc.algorithm, len(got), tc.want)
		}
	}
	if len(s.keys) != 3 {
		t.Errorf("it has %d keys: %s", len(s.keys), s.Text())
	}
}

// A document with weak keys is refused with the reason; what is merely not understood is left out.
func TestParse(t *testing.T) {
	t.Parallel()
	private := ecKey(t)
	weak, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	good := strings.TrimSuffix(strings.TrimPrefix(string(document(t,
		jose.JSONWebKey{Key: &private.PublicKey, KeyID: "a"})), `{"keys":[`), `]}`)
	for name, tc := range map[string]struct{ text, want string }{
		"good":          {`{"keys":[` + good + `],"more":1}`, ""},
		"unknown kind":  {`{"keys":[{"kty":"new"},` + good + `]}`, ""},
		"unknown curve": {`{"keys":[{"kty":"EC","crv":"secp256k1","x":"AA","y":"AA"},` + good + `]}`, ""},
		"private":       {string(document(t, jose.JSONWebKey{Key: private, KeyID: "a"})), "key 1: it is a private or a shared key"},
		"shared":        {`{"keys":[` + good + `,{"kty":"oct","k":"c2VjcmV0"}]}`, "key 2: it is a private or a shared key"},
		"weak":          {string(document(t, jose.JSONWebKey{Key: &weak.PublicKey})), "1024 bits, want 2048 to 8192"},
		"none":          {`{"keys":[]}`, "no usable public key"},
		"nothing":       {``, "not a usable set"},
		"no object":     {`[]`, "not a usable set"},
		"not on curve":  {`{"keys":[{"kty":"EC","crv":"P-256","x":"AAAA","y":"AAAA"}]}`, "key 1"},
		"large":         {strings.Repeat(" ", MaxBytes+1), "at most 262144"},
	} {
		s, err := Parse([]byte(tc.text))
		if tc.want == "" {
			if err != nil || len(s.keys) != 1 {
				t.Errorf("%s: got %v", name, err)
			}
			continue
		}
		if !errors.Is(err, ErrDocument) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %q", name, err, tc.want)
		}
	}
}

// What can be read is written as something that reads the same, without a secret in it.
func FuzzParse(f *testing.F) {
	f.Add(document(f, jose.JSONWebKey{Key: &ecKey(f).PublicKey, KeyID: "a"}))
	f.Add(document(f, jose.JSONWebKey{Key: ecKey(f), KeyID: "a"}))
	f.Add([]byte(`{"keys":[{"kty":"RSA","n":"AQAB","e":"AQAB"},{"kty":"oct","k":"AA"},{"kty":"OKP","crv":"Ed25519","x":"AA"}]}`))
	f.Add([]byte(`{"keys":[{"kty":"RSA","n":"AQAB","e":"AQAB","x5c":["AA"]}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := Parse(text)
		if err != nil {
			if !errors.Is(err, ErrDocument) {
				t.Fatalf("unexpected error %v", err)
			}
			return
		}
		again, err := Parse([]byte(s.Text()))
		if err != nil || again.Text() != s.Text() || len(again.keys) != len(s.keys) {
			t.Fatalf("%s is read again as %v, error %v", s.Text(), again, err)
		}
		for _, k := range s.keys {
			if !k.IsPublic() {
				t.Fatalf("a key is not public: %s", s.Text())
			}
		}
	})
}
