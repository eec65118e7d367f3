package ca

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/record"
)

// replicaTokenPrefix begins every replica token: it is found by those who search for secrets in the
// wrong place.
const replicaTokenPrefix = "ashore-replica."

// replicaTokens is where replica tokens stand in the table, by their IDs.
const replicaTokens = "replica-token/"

// MaxReplicaTokenTTL is how long a replica token may live.
const MaxReplicaTokenTTL = 24 * time.Hour

// ErrReplicaToken is why no replica token is made: it is the caller's fault.
var ErrReplicaToken = errors.New("cannot make a replica token")

// replicaSecret is a replica token in the hands of the replica that it was made for: a private key
// of its own, and the root that the replica is to find.
type replicaSecret struct {
	id   string
	key  ed25519.PrivateKey
	root string
}

// text is the token as an operator carries it.
func (s replicaSecret) text() (string, error) {
	root, err := hex.DecodeString(strings.TrimPrefix(s.root, "sha256:"))
	return replicaTokenPrefix + s.id + "." + base64.RawURLEncoding.EncodeToString(append(s.key.Seed(), root...)), err
}

// parseReplicaToken reads what text made. Errors never hold any of it.
func parseReplicaToken(text string) (replicaSecret, error) {
	rest, ok := strings.CutPrefix(strings.TrimSpace(text), replicaTokenPrefix)
	id, secret, dot := strings.Cut(rest, ".")
	raw, err := base64.RawURLEncoding.Strict().DecodeString(secret)
	if !ok || !dot || err != nil || len(raw) != ed25519.SeedSize+sha256.Size ||
		len(id) != idEncoding().EncodedLen(tokenID) {
		return replicaSecret{}, errors.New("it is not of the form of a replica token: a part is missing or cut")
	}
	if _, err := idEncoding().DecodeString(id); err != nil {
		return replicaSecret{}, errors.New("its ID holds characters that no token has")
	}
	return replicaSecret{id, ed25519.NewKeyFromSeed(raw[:ed25519.SeedSize]),
		"sha256:" + hex.EncodeToString(raw[ed25519.SeedSize:])}, nil
}

// replicaToken is what the records know of a token: nothing that helps who reads it. Who can write
// records can make none either: the root signs it.
type replicaToken struct {
	Format int `json:"v"`
	// Public is the key that requests are proven by.
	Public []byte `json:"public"`
	// Root is the root that signed when it was made, and Signature its signature.
	Root      string    `json:"root"`
	Signature []byte    `json:"signature"`
	By        string    `json:"by,omitempty"`
	Created   time.Time `json:"created"`
	Expires   time.Time `json:"expires"`
	// Key is the hash of the key that it was taken for; empty: it was not. The same key gets the
	// same answer.
	Key string `json:"key,omitempty"`
}

// signed is what the root signs of a token.
func (t replicaToken) signed(domain, id string) []byte {
	return fmt.Appendf(nil, "ashore replica token\n%s\n%s\n%s\n%x\n%s", domain, id, t.Root, t.Public,
		t.Expires.UTC().Format(time.RFC3339))
}

// createReplicaToken makes a token that lets one more replica have an intermediate below the root
// that signs.
func (s *selfSigned) createReplicaToken(ctx context.Context, ttl time.Duration, by string, now time.Time) (string,
	time.Time, error) {
	if s.replica == nil {
		return "", time.Time{}, fmt.Errorf("%w: this ashored keeps its state on this machine alone: replicas share a store (setting store, kind consul)", ErrReplicaToken)
	}
	root, err := s.state.root(s.state.Active)
	if err != nil {
		return "", time.Time{}, err
	}
	pair, err := s.rootKey(root)
	if err != nil {
		return "", time.Time{}, fmt.Errorf("%w here: make it on the replica that has the root's key: %w",
			ErrReplicaToken, err)
	}
	id := make([]byte, tokenID)
	if _, err := rand.Read(id); err != nil {
		return "", time.Time{}, err
	}
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return "", time.Time{}, err
	}
	secret := replicaSecret{idEncoding().EncodeToString(id), private, s.state.Active}
	t := replicaToken{Format: 1, Public: public, Root: s.state.Active, By: by, Created: now.UTC(),
		Expires: now.Add(ttl).UTC().Truncate(time.Second)}
	if t.Signature, err = signText(pair.key, t.signed(s.trustDomain, secret.id)); err != nil {
		return "", time.Time{}, err
	}
	value, err := json.Marshal(t)
	if err != nil {
		return "", time.Time{}, err
	}
	if err := s.records.records.Commit(ctx, record.Write{Key: record.Key{Table: table, Name: replicaTokens + secret.id},
		Value: value}); err != nil {
		return "", time.Time{}, err
	}
	s.audit(audit.Event{Action: audit.ReplicaToken, Actor: by, Target: secret.id,
		Details: map[string]string{"expires": t.Expires.Format(time.RFC3339)}})
	text, err := secret.text()
	return text, t.Expires, err
}

// readReplicaToken is a token of the records that the root has signed, and its version. Errors say
// what is wrong with it, for whoever shows it.
func (s *selfSigned) readReplicaToken(ctx context.Context, id string) (t replicaToken, version string, err error) {
	r, err := s.records.records.Get(ctx, record.Key{Table: table, Name: replicaTokens + id})
	if err != nil {
		return t, "", err
	}
	if r.Version == "" {
		return t, "", refusal("there is no such replica token, or it has ended")
	}
	if json.Unmarshal(r.Value, &t) != nil || t.Format != 1 || len(t.Public) != ed25519.PublicKeySize {
		return t, "", refusal("its replica token cannot be read in the records")
	}
	root, err := s.state.root(t.Root)
	if err != nil || checkText(root.PublicKey, t.signed(s.trustDomain, id), t.Signature) != nil {
		return t, "", refusal("its replica token is not signed by a root that is trusted")
	}
	return t, r.Version, nil
}

// refusal is why a replica gets no intermediate.
type refusal string

func (r refusal) Error() string { return string(r) }

// signText signs the SHA-256 of a text.
func signText(key crypto.Signer, text []byte) ([]byte, error) {
	sum := sha256.Sum256(text)
	sig, err := key.Sign(rand.Reader, sum[:], crypto.SHA256)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSigner, err)
	}
	return sig, nil
}

// checkText says what is wrong with a signature that signText made.
func checkText(key crypto.PublicKey, text, sig []byte) error {
	algorithm := x509.SHA256WithRSA
	if _, ok := key.(*ecdsa.PublicKey); ok {
		algorithm = x509.ECDSAWithSHA256
	}
	return (&x509.Certificate{PublicKey: key}).CheckSignature(algorithm, text, sig)
}
