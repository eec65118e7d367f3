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

// ErrDocument means that a document has no usable keys.
var ErrDocument = errors.New("not a usable set of keys (JWKS)")

const (
	// MaxBytes bounds a document.
	MaxBytes = 256 << 10
	// RSA keys have at least minRSA and at most maxRSA bits.
	minRSA, maxRSA = 2048, 8192
)

// Set is a set of public keys. Immutable.
type Set struct {
	keys []jose.JSONWebKey
	text string
}

// Algorithms are those that a signature may use: only ones whose verifier cannot sign.
func Algorithms() []jose.SignatureAlgorithm {
	return []jose.SignatureAlgorithm{
		jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512,
		jose.ES256, jose.ES384, jose.ES512, jose.EdDSA,
	}
}

// Parse reads a document. Keys that cannot be used are left out, as RFC 7517, section 5, requires. A
// document with a private or a shared key is refused, so that its owner notices. Errors: ErrDocument.
func Parse(text []byte) (*Set, error) {
	var doc struct {
		Keys []json.RawMessage `json:"keys"`
	}
	err := fmt.Errorf("it has %d bytes, at most %d are allowed", len(text), MaxBytes)
	if len(text) <= MaxBytes {
		err = json.Unmarshal(text, &doc)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDocument, err)
	}
	s := &Set{}
	unusable := errors.New("it is empty")
	for i, raw := range doc.Keys {
		k, err := parseKey(raw)
		switch {
		case errors.Is(err, errSecret):
			return nil, fmt.Errorf("%w: key %d: %w", ErrDocument, i+1, err)
		case err != nil:
			unusable = fmt.Errorf("key %d: %w", i+1, err)
		default:
			s.keys = append(s.keys, k)
		}
	}
	if len(s.keys) == 0 {
		return nil, fmt.Errorf("%w: it has no usable public key: %w", ErrDocument, unusable)
	}
	out, err := json.Marshal(jose.JSONWebKeySet{Keys: s.keys})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDocument, err)
	}
	s.text = string(out)
	return s, nil
}

// errSecret is why a document is refused.
var errSecret = errors.New("it is a private or a shared key: whoever can read the document can sign with it; " +
	"replace the key")

// parseKey reads one key. Errors: errSecret, or why it cannot be used.
func parseKey(raw json.RawMessage) (k jose.JSONWebKey, err error) {
	var secret struct {
		D *string `json:"d"`
		K *string `json:"k"`
	}
	if err := json.Unmarshal(raw, &secret); err != nil {
		return k, err
	}
	if secret.D != nil || secret.K != nil {
		return k, errSecret
	}
	if err := k.UnmarshalJSON(raw); err != nil {
		return k, err
	}
	switch {
	case k.Use != "" && k.Use != "sig":
		return k, errors.New("it is not for signatures")
	case !k.Valid() || !k.IsPublic() || !fits(k):
		return k, errors.New("it is not a valid public key, or not one for its algorithm")
	}
	if r, ok := k.Key.(*rsa.PublicKey); ok && (r.N.BitLen() < minRSA || r.N.BitLen() > maxRSA) {
		return k, fmt.Errorf("its RSA key has %d bits, want %d to %d", r.N.BitLen(), minRSA, maxRSA)
	}
	// Certificates are not checked here, and verifiers do not need them.
	return jose.JSONWebKey{Key: k.Key, KeyID: k.KeyID, Algorithm: k.Algorithm, Use: k.Use}, nil
}

// fits reports whether a key can verify signatures of its algorithm. Source: RFC 7518, section 3.1;
// RFC 8037, section 3.1.
func fits(k jose.JSONWebKey) bool {
	alg := k.Algorithm
	switch key := k.Key.(type) {
	case *rsa.PublicKey:
		return alg == "" || slices.Contains([]string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}, alg)
	case *ecdsa.PublicKey:
		return alg == "" || alg == map[int]string{256: "ES256", 384: "ES384", 521: "ES512"}[key.Params().BitSize]
	}
	return alg == "" || alg == "EdDSA"
}

// Text is the set as a document, with public keys only.
func (s *Set) Text() string { return s.text }

// Keys are those that may have signed a token: with its key ID, or all if it has none, and for its
// algorithm. Both are from the token's header, which is not verified yet. A nil set has none.
func (s *Set) Keys(id, algorithm string) (out []jose.JSONWebKey) {
	if s == nil {
		return nil
	}
	for _, k := range s.keys {
		if (id == "" || k.KeyID == id) && (k.Algorithm == "" || k.Algorithm == algorithm) {
			out = append(out, k)
		}
	}
	return out
}
