package harness

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// issuerKey is the key of an issuer of tokens, made of its name.
func issuerKey(t testing.TB, name string) *ecdsa.PrivateKey {
	t.Helper()
	seed := sha256.Sum256([]byte(name))
	key, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), seed[:])
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// keySet is what an issuer publishes.
func keySet(t testing.TB, name string) string {
	t.Helper()
	text, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: issuerKey(t, name).Public(), KeyID: name,
		Algorithm: string(jose.ES256), Use: "sig"}}})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Expand writes out what stands for keys and tokens:
//
//	$KEYS(name)                       the key set of an issuer
//	$TOKEN(key=name;iss=x;exp=-1h)    a token; each further claim is a text, or a list when it holds "|", and
//	                                  its name's dots lead into objects; after ":=" stands its JSON. exp is
//	                                  from now on, 1h when it is missing; "after" stands behind the signature
//	$BEARER(…)                        the same after "Bearer "
func Expand(t testing.TB, text string) string {
	t.Helper()
	for {
		at := strings.Index(text, "$")
		name, rest, ok := strings.Cut(text[at+1:], "(")
		if at < 0 || !ok {
			return text
		}
		inside, after, ok := strings.Cut(rest, ")")
		if !ok {
			t.Fatalf("%q is not closed", text)
		}
		switch name {
		case "KEYS":
			inside = keySet(t, inside)
		case "TOKEN":
			inside = token(t, inside)
		case "BEARER":
			inside = "Bearer " + token(t, inside)
		default:
			t.Fatalf("cannot read $%s", name)
		}
		text = text[:at] + inside + after
	}
}

// token signs the claims of a specification.
func token(t testing.TB, spec string) string {
	t.Helper()
	claims := map[string]any{"exp": time.Now().Add(time.Hour).Unix()}
	key, after, damage := "", "", false
	for part := range strings.SplitSeq(spec, ";") {
		name, value, _ := strings.Cut(part, "=")
		switch name {
		case "key":
			key = value
		case "damaged":
			damage = true
		case "after":
			after = value
		case "exp", "nbf":
			d, err := time.ParseDuration(value)
			if err != nil {
				t.Fatal(err)
			}
			claims[name] = time.Now().Add(d).Unix()
		default:
			put(t, claims, strings.Split(name, "."), value)
		}
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256,
		Key: jose.JSONWebKey{Key: issuerKey(t, key), KeyID: key}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := jwt.Signed(signer).Claims(claims).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	if damage { // another payload under the same signature
		head, _, _ := strings.Cut(text, ".")
		_, tail, _ := strings.Cut(text[len(head)+1:], ".")
		text = head + ".eyJpc3MiOiJhIn0." + tail
	}
	return text + after
}

// put sets a claim, making the objects on the way.
func put(t testing.TB, claims map[string]any, path []string, value string) {
	t.Helper()
	if len(path) > 1 {
		inner, ok := claims[path[0]].(map[string]any)
		if !ok {
			inner = map[string]any{}
			claims[path[0]] = inner
		}
		put(t, inner, path[1:], value)
		return
	}
	if name, ok := strings.CutSuffix(path[0], ":"); ok {
		var any any
		if err := json.Unmarshal([]byte(value), &any); err != nil {
			t.Fatal(err)
		}
		claims[name] = any
		return
	}
	if strings.Contains(value, "|") {
		claims[path[0]] = strings.Split(value, "|")
		return
	}
	claims[path[0]] = value
}
