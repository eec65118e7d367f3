package jwks

import (
	"crypto/ecdsa"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/go-jose/go-jose/v4"
)

// ErrDocument is why a document gives no keys.
var ErrDocument = errors.New("not a usable set of keys (JWKS)")

const (
	// MaxBytes bounds a document.
	MaxBytes = 256 << 10
	// MaxKeys bounds how many keys a document has, those of unknown kinds included.
	MaxKeys = 100
	// RSA keys have at least minRSA and at most maxRSA bits.
	minRSA, maxRSA = 2048, 8192
)

// Set is a set of public keys. Immutable.
type Set struct {
	keys []jose.JSONWebKey
	text string
}

// Algorithms are those by which a signature may be made: only ones whose verifier cannot sign.
func Algorithms() []jose.SignatureAlgorithm {
	return []jose.SignatureAlgorithm{
		jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512,
		jose.ES256, jose.ES384, jose.ES512, jose.EdDSA,
	}
}

// Parse reads a document. Keys that cannot be used are left out, as RFC 7517 section 5 asks.
// Errors: ErrDocument; a document with a private or a shared key is refused whole, for its owner
// must know that the key is no secret any more.
func Parse(text []byte) (*Set, error) {
	if len(text) > MaxBytes {
		return nil, fmt.Errorf("%w: it has %d bytes, at most %d are allowed", ErrDocument, len(text), MaxBytes)
	}
	var doc struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(text, &doc); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDocument, err)
	}
	if n := len(doc.Keys); n > MaxKeys {
		return nil, fmt.Errorf("%w: it has %d keys, at most %d are allowed", ErrDocument, n, MaxKeys)
	}
	var keys []jose.JSONWebKey
	unusable := errors.New("it is empty")
	for i, raw := range doc.Keys {
		k, err := parseKey(raw)
		switch {
		case errors.Is(err, errSecret):
			return nil, fmt.Errorf("%w: key %d: %w", ErrDocument, i+1, err)
		case err != nil:
			unusable = fmt.Errorf("key %d: %w", i+1, err)
		default:
			keys = append(keys, k)
		}
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("%w: it has no usable public key: %w", ErrDocument, unusable)
	}
	out, err := json.Marshal(jose.JSONWebKeySet{Keys: keys})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDocument, err)
	}
	return &Set{keys: keys, text: string(out)}, nil
}

// errSecret is why a document is refused whole.
var errSecret = errors.New("it is a private or a shared key: whoever can read the document can sign with it; " +
	"replace the key")

// parseKey reads one key. Errors: errSecret, or why it is of no use here.
func parseKey(raw json.RawMessage) (jose.JSONWebKey, error) {
	var k jose.JSONWebKey
	var head struct {
		Kind string  `json:"kty"`
		Use  string  `json:"use"`
		D    *string `json:"d"`
		K    *string `json:"k"`
	}
	if err := json.Unmarshal(raw, &head); err != nil {
		return k, err
	}
	switch {
	case head.D != nil || head.K != nil || head.Kind == "oct":
		return k, errSecret
	case head.Use != "" && head.Use != "sig":
		return k, errors.New("it is not for signatures")
	}
	if err := k.UnmarshalJSON(raw); err != nil {
		return k, err
	}
	if !k.Valid() || !k.IsPublic() || !fits(k.Key, k.Algorithm) {
		return k, errors.New("it is not a valid public key, or not one for its algorithm")
	}
	if r, ok := k.Key.(*rsa.PublicKey); ok && (r.N.BitLen() < minRSA || r.N.BitLen() > maxRSA) {
		return k, fmt.Errorf("its RSA key has %d bits, want %d to %d", r.N.BitLen(), minRSA, maxRSA)
	}
	// Certificates say nothing that is checked here, and nobody needs them to verify.
	return jose.JSONWebKey{Key: k.Key, KeyID: k.KeyID, Algorithm: k.Algorithm, Use: k.Use}, nil
}

// fits says whether signatures by an algorithm can be verified by a key; every algorithm is allowed
// that is not named. Source: RFC 7518, section 3.1; RFC 8037, section 3.1.
func fits(key any, algorithm string) bool {
	if algorithm == "" {
		return true
	}
	switch k := key.(type) {
	case *rsa.PublicKey:
		return slices.Contains([]string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}, algorithm)
	case *ecdsa.PublicKey:
		return algorithm == map[int]string{256: "ES256", 384: "ES384", 521: "ES512"}[k.Curve.Params().BitSize]
	default:
		return algorithm == "EdDSA"
	}
}

// Text is the set as a document: public keys alone, whatever else stood beside them.
func (s *Set) Text() string { return s.text }

// Keys are those that a token may be signed by: those with its key ID, or all when it names none,
// and of them those that are made for its algorithm. Both come from the token's header, which is
// not to be believed yet.
func (s *Set) Keys(id, algorithm string) []jose.JSONWebKey {
	var out []jose.JSONWebKey
	for _, k := range s.keys {
		if (id == "" || k.KeyID == id) && (k.Algorithm == "" || k.Algorithm == algorithm) {
			out = append(out, k)
		}
	}
	return out
}

// Has says whether a key has this ID.
func (s *Set) Has(id string) bool {
	for _, k := range s.keys {
		if k.KeyID == id {
			return true
		}
	}
	return false
}
