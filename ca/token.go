package ca

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/record"
)

// tokenPrefix begins every join token, so that scanners for secrets can find it.
const tokenPrefix = "ashore-join."

// How long a join token may live.
const (
	DefaultTokenTTL = time.Hour
	MaxTokenTTL     = 7 * 24 * time.Hour
	// tokenKept is how long a token is listed after it expired.
	tokenKept = 24 * time.Hour
)

// ErrRevokedGroup means that nobody can join a group, because its identity is revoked.
var ErrRevokedGroup = errors.New("the identity of the group is revoked")

// Token is a join token without its text, which nobody has but the one it was made for.
type Token struct {
	// ID names it. It is no secret.
	ID string `json:"id"`
	// Hash is the SHA-256 of the whole text, in hexadecimal digits.
	Hash string `json:"hash"`
	// Group is the WorkloadGroup that it lets a workload join: "namespace/name".
	Group string `json:"group"`
	// Identity is what that workload becomes, a SPIFFE ID, as far as it was known when the token was
	// made.
	Identity string `json:"identity"`
	// By is who made it.
	By      string    `json:"by,omitempty"`
	Created time.Time `json:"created"`
	Expires time.Time `json:"expires"`

	// Key is the hash of the key that used it, and Workload the "namespace/name" that joined. Empty:
	// it was not used. The same key gets the same answer until Expires.
	Key      string `json:"key,omitempty"`
	Workload string `json:"workload,omitempty"`
	// Used is when it was used, and From is the caller's address.
	Used time.Time `json:"used,omitzero"`
	From string    `json:"from,omitempty"`
}

// State is "used", "expired" or "unused": the first that is true.
func (t Token) State(now time.Time) string {
	switch {
	case t.Key != "":
		return "used"
	case !now.Before(t.Expires):
		return "expired"
	}
	return "unused"
}

// The ID of a token, and each half of its secret, are a rand.Text of this length: 130 random bits.
const randomLength = 26

// newTokenID returns a random ID of a token.
func newTokenID() string { return strings.ToLower(rand.Text()[:randomLength]) }

// newToken returns the text of a new token, and its ID.
func newToken() (text, id string) {
	id = newTokenID()
	return tokenPrefix + id + "." + rand.Text()[:randomLength] + rand.Text()[:randomLength], id
}

// isToken reports whether a text is meant to be a join token.
func isToken(text string) bool { return strings.HasPrefix(text, tokenPrefix) }

// parseToken returns the ID and the hash of a well-formed token. Errors hold nothing of the text.
func parseToken(text string) (id, hash string, err error) {
	rest, ok := strings.CutPrefix(text, tokenPrefix)
	id, secret, _ := strings.Cut(rest, ".")
	invalid := func(c rune) bool { return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '2' || c > '7') }
	if !ok || len(id) != randomLength || len(secret) != 2*randomLength || strings.ContainsFunc(id+secret, invalid) {
		return "", "", errors.New("it does not have the form of a join token: a part is missing or mistyped")
	}
	return id, hexSum([]byte(text)), nil
}

// TokenRequest asks for a join token.
type TokenRequest struct {
	// Group is the WorkloadGroup to join: "namespace/name". It must exist.
	Group string
	// TTL is how long the token may be used. Zero means DefaultTokenTTL.
	TTL time.Duration
	// By is who asks.
	By string
}

// CreateToken makes a join token. Its text is nowhere but in the answer. Errors: ErrNoGroup,
// ErrRevokedGroup, or the store cannot be written.
func (l *Ledger) CreateToken(ctx context.Context, r TokenRequest) (text string, t Token, err error) {
	id, err := l.resolve(ctx, r.Group)
	if err != nil {
		return "", t, err
	}
	if l.Revocations().Has(id.String()) {
		return "", t, fmt.Errorf("group %s: %w: %s", r.Group, ErrRevokedGroup, id)
	}
	text, tokenID := newToken()
	now := l.config.Now()
	t = Token{ID: tokenID, Hash: hexSum([]byte(text)), Group: r.Group, Identity: id.String(), By: r.By, Created: now,
		Expires: now.Add(cmp.Or(r.TTL, DefaultTokenTTL))}
	event := audit.Event{Action: audit.TokenCreate, Actor: r.By, Target: tokenID,
		Details: map[string]string{"group": r.Group, "expires": t.Expires.Format(time.RFC3339)}}
	if err := l.audited(event, l.tokens.commit(ctx, t.ID, t, "")); err != nil {
		return "", Token{}, fmt.Errorf("no join token is made, because it cannot be stored: %w", err)
	}
	return text, t, nil
}

// audited records an action in the audit log, and returns err, which is how it ended.
func (l *Ledger) audited(e audit.Event, err error) error {
	if err != nil {
		e.Outcome, e.Details["error"] = audit.Failed, err.Error()
	}
	l.config.Audit(e)
	return err
}

// Tokens lists the tokens, oldest first; expired ones for one more day. If records cannot be read
// it returns an error and the other tokens.
func (l *Ledger) Tokens(ctx context.Context) ([]Token, error) {
	out, err := l.tokens.list(ctx)
	slices.SortStableFunc(out, func(a, b Token) int { return a.Created.Compare(b.Created) })
	return out, err
}

// RevokeToken deletes a token. If it was used, its answer is not repeated any more; the workload that
// joined with it stays. Errors: ErrNotFound, or the store cannot be written.
func (l *Ledger) RevokeToken(ctx context.Context, id, by string) error {
	ctx = context.WithoutCancel(ctx) // as in Revoke
	err := l.retry(func() error {
		t, version, err := l.tokens.get(ctx, id)
		if err == nil && version == "" {
			return fmt.Errorf("join token %.40q: %w", id, ErrNotFound)
		}
		if err != nil {
			return err
		}
		return l.config.Records.Commit(ctx, record.Write{Key: l.tokens.key(t.ID), Version: version})
	})
	if errors.Is(err, ErrNotFound) {
		return err // id may be a whole token, which must not be in the audit log
	}
	event := audit.Event{Action: audit.TokenRevoke, Actor: by, Target: id, Details: map[string]string{}}
	if err = l.audited(event, err); err != nil {
		return fmt.Errorf("revoke join token %s: %w", id, err)
	}
	return nil
}

// checkToken returns the token of a text and the version of its record, if it may be used now. It
// changes nothing. Errors: *Refusal, or the store cannot be read.
func (l *Ledger) checkToken(ctx context.Context, text string, now time.Time) (t Token, version string, err error) {
	id, hash, err := parseToken(text)
	if err != nil {
		return t, "", refusal(byToken, "token malformed", "%w", err)
	}
	t, version, err = l.tokens.get(ctx, id)
	behind := l.config.Records.Behind()
	switch {
	case err != nil:
		return t, "", err
	case version == "" && behind != nil:
		return t, "", &Refusal{Code: codes.Unavailable, Public: publicBehind, Reason: "out of touch",
			Err: fmt.Errorf("this replica does not know join token %s, and is out of touch with the store: %w",
				id, behind)}
	case version == "":
		return t, "", refusal(byToken, "token unknown",
			"there is no join token %s: it was revoked, or it expired long ago", id)
	case subtle.ConstantTimeCompare([]byte(hash), []byte(t.Hash)) != 1:
		return t, "", refusal(byToken, "token tampered",
			"join token %s has another secret: it is mistyped, or somebody guesses", id)
	case !now.Before(t.Expires):
		return t, "", refusal(byToken, "token expired", "join token %s expired at %s", id,
			t.Expires.Format(time.RFC3339))
	}
	return t, version, nil
}
