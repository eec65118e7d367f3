package ca

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// tokenPrefix begins every join token: it is found by those who search for secrets in the wrong
// place.
const tokenPrefix = "ashore-join."

// A join token has an ID of tokenID bytes and a secret of tokenSecret bytes.
const tokenID, tokenSecret = 10, 32

// How long a join token may live.
const (
	DefaultTokenTTL = time.Hour
	MaxTokenTTL     = 7 * 24 * time.Hour
	// tokenKept is how long after its end a token is still listed.
	tokenKept = 24 * time.Hour
)

func idEncoding() *base32.Encoding {
	return base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)
}

// newToken makes the text of a token, and its ID.
func newToken() (text, id string) {
	b := make([]byte, tokenID+tokenSecret)
	_, _ = rand.Read(b) // never fails
	id = idEncoding().EncodeToString(b[:tokenID])
	return tokenPrefix + id + "." + base64.RawURLEncoding.EncodeToString(b[tokenID:]), id
}

// isToken says that a text is meant to be a join token.
func isToken(text string) bool { return strings.HasPrefix(text, tokenPrefix) }

// parseToken is the ID and the hash of a token that is well formed. Errors never hold any of the
// text.
func parseToken(text string) (id string, hash [sha256.Size]byte, err error) {
	rest, ok := strings.CutPrefix(text, tokenPrefix)
	id, secret, dot := strings.Cut(rest, ".")
	_, idErr := idEncoding().DecodeString(id)
	_, secretErr := base64.RawURLEncoding.Strict().DecodeString(secret)
	if !ok || !dot || idErr != nil || secretErr != nil || len(id) != idEncoding().EncodedLen(tokenID) ||
		len(secret) != base64.RawURLEncoding.EncodedLen(tokenSecret) {
		return "", hash, errors.New("it is not of the form of a join token: a part is missing or mistyped")
	}
	return id, sha256.Sum256([]byte(text)), nil
}

// Token is what may be told of a join token: all but its text, which nobody has but the one it was
// made for.
type Token struct {
	// ID names it. It is no secret.
	ID string `json:"-"`
	// Format is 1.
	Format int `json:"v"`
	// Hash is the SHA-256 of the whole text, as hexadecimal digits.
	Hash string `json:"hash"`
	// Group is the WorkloadGroup that it lets a workload join: "namespace/name".
	Group string `json:"group"`
	// By is who made it.
	By      string    `json:"by,omitempty"`
	Created time.Time `json:"created"`
	Expires time.Time `json:"expires"`

	// Key is the hash of the key that it was taken for, and Workload the "namespace/name" that it
	// made. Empty: it was not taken. The same key gets the same answer until Expires.
	Key      string `json:"key,omitempty"`
	Workload string `json:"workload,omitempty"`
	// Used is when, and From the address where from.
	Used time.Time `json:"used,omitzero"`
	From string    `json:"from,omitempty"`

	// Revoked is when an operator took it back; zero when nobody did.
	Revoked   time.Time `json:"revoked,omitzero"`
	RevokedBy string    `json:"revokedBy,omitempty"`
}

// State is "revoked", "used", "expired" or "unused": the first that is true.
func (t Token) State(now time.Time) string {
	switch {
	case !t.Revoked.IsZero():
		return "revoked"
	case t.Key != "":
		return "used"
	case !now.Before(t.Expires):
		return "expired"
	}
	return "unused"
}

// decodeToken reads a token's record.
func decodeToken(id string, value []byte) (Token, error) {
	var t Token
	if err := decodeRecord(value, &t); err != nil {
		return Token{}, fmt.Errorf("join token %s: %w", id, err)
	}
	t.ID = id
	return t, nil
}

// decodeRecord reads a record of format 1.
func decodeRecord(value []byte, into any) error {
	var head struct {
		Format int `json:"v"`
	}
	err := json.Unmarshal(value, &head)
	if err == nil && head.Format != 1 {
		return fmt.Errorf("its record has format %d, this version reads 1: start the version that wrote it", head.Format)
	}
	if err == nil {
		err = json.Unmarshal(value, into)
	}
	if err != nil {
		return fmt.Errorf("its record cannot be read: %w", err)
	}
	return nil
}
