package ca

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/record"
)

// ErrNotFound says that there is no such token, workload, certificate or revocation.
var ErrNotFound = errors.New("not found")

// tokenTable is where tokens stand, by ID.
const tokenTable = "token"

// maxTries is how often a change is tried again after somebody else's was first.
const maxTries = 20

// TokenRequest asks for a join token.
type TokenRequest struct {
	// Group is the WorkloadGroup to join: "namespace/name". It must exist.
	Group string
	// TTL is how long the token may be used. Zero means DefaultTokenTTL.
	TTL time.Duration
	// By is who asks.
	By string
}

// ErrRevokedGroup says that the identity of a group is revoked, so that nobody joins it.
var ErrRevokedGroup = errors.New("the identity of the group is revoked")

// CreateToken makes a join token. Its text is nowhere but in the answer. Errors: what is wrong with
// the request, among it ErrNoGroup and ErrRevokedGroup.
func (l *Ledger) CreateToken(ctx context.Context, r TokenRequest) (text string, t Token, err error) {
	r.TTL = cmp.Or(r.TTL, DefaultTokenTTL)
	id, err := l.resolve(ctx, r.Group)
	if err != nil {
		return "", t, err
	}
	if l.Revocations().Has(RevokeIdentity, id.String()) {
		return "", t, fmt.Errorf("group %s: %w: %s", r.Group, ErrRevokedGroup, id)
	}
	text, tokenID := newToken()
	hash := sha256.Sum256([]byte(text))
	now := l.now()
	t = Token{ID: tokenID, Format: 1, Hash: hex.EncodeToString(hash[:]), Group: r.Group, By: r.By, Created: now,
		Expires: now.Add(r.TTL)}
	event := audit.Event{Action: audit.TokenCreate, Actor: r.By, Target: tokenID,
		Details: map[string]string{"group": r.Group, "expires": t.Expires.Format(time.RFC3339)}}
	if err := l.writeToken(ctx, t, ""); err != nil {
		l.failed(event, err)
		return "", Token{}, fmt.Errorf("no join token is made, for it cannot be kept: %w", err)
	}
	l.audit(event)
	return text, t, nil
}

// Tokens lists the tokens, those that ended within a day included, oldest first. For a record
// that cannot be read it returns an error, together with the other tokens.
func (l *Ledger) Tokens(ctx context.Context) ([]Token, error) {
	records, err := l.records.List(ctx, tokenTable)
	if err != nil {
		return nil, fmt.Errorf("list join tokens: %w", err)
	}
	var out []Token
	var errs []error
	for _, r := range records {
		t, err := decodeToken(r.Name, r.Value)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		out = append(out, t)
	}
	slices.SortStableFunc(out, func(a, b Token) int { return a.Created.Compare(b.Created) })
	return out, errors.Join(errs...)
}

// RevokeToken takes a token back. One that was used is revoked too: its answer is not repeated; the
// workload that it made stays. Errors: ErrNotFound, or the store cannot be written.
func (l *Ledger) RevokeToken(ctx context.Context, id, by string) error {
	ctx = context.WithoutCancel(ctx) // as in Revoke
	err := l.retry(func() error {
		t, version, err := l.token(ctx, id)
		switch {
		case err != nil:
			return err
		case version == "":
			return fmt.Errorf("join token %.40q: %w", id, ErrNotFound)
		case !t.Revoked.IsZero():
			return nil
		}
		t.Revoked, t.RevokedBy = l.now(), by
		return l.writeToken(ctx, t, version)
	})
	event := audit.Event{Action: audit.TokenRevoke, Actor: by, Target: id, Details: map[string]string{}}
	switch {
	case err == nil:
		l.audit(event)
		return nil
	case errors.Is(err, ErrNotFound):
		return err // what was named may be a whole token, which the audit log is not to have
	}
	l.failed(event, err)
	return fmt.Errorf("revoke join token %s: %w", id, err)
}

// token reads a token; version is empty when there is none.
func (l *Ledger) token(ctx context.Context, id string) (t Token, version string, err error) {
	r, err := l.records.Get(ctx, record.Key{Table: tokenTable, Name: id})
	if err != nil || r.Version == "" {
		return t, "", err
	}
	t, err = decodeToken(id, r.Value)
	return t, r.Version, err
}

func (l *Ledger) writeToken(ctx context.Context, t Token, version string) error {
	write, err := tokenWrite(t, version)
	if err != nil {
		return err
	}
	return l.records.Commit(ctx, write)
}

// tokenWrite replaces a join token that was read at a version.
func tokenWrite(t Token, version string) (record.Write, error) {
	value, err := json.Marshal(t)
	return record.Write{Key: record.Key{Table: tokenTable, Name: t.ID}, Value: value, Version: version}, err
}

// behind says why the store may lack what other replicas wrote; nil: it has everything.
func (l *Ledger) behind() error {
	if l.follower == nil {
		return nil
	}
	return l.follower.Behind()
}

// unsure is r, which refuses what the store does not have. Where the store may lack what other
// replicas wrote, the caller is asked to try again.
func (l *Ledger) unsure(r *Refusal) *Refusal {
	why := l.behind()
	if why == nil {
		return r
	}
	return &Refusal{Code: codes.Unavailable, Public: publicBehind, Reason: "out of touch",
		Err: fmt.Errorf("%w, as far as this replica knows, which is out of touch with the store: %w", r.Err, why)}
}

// refuseToken is a refusal whose caller learns nothing.
func refuseToken(reason string, err error) *Refusal {
	return &Refusal{Code: codes.PermissionDenied, Public: publicToken, Reason: reason, Err: err}
}

// checkToken finds the token of a text and says whether it may be used now. It changes nothing.
// Errors: *Refusal.
func (l *Ledger) checkToken(ctx context.Context, text string, now time.Time) (Token, string, error) {
	id, hash, err := parseToken(text)
	if err != nil {
		return Token{}, "", refuseToken("token malformed", err)
	}
	t, version, err := l.token(ctx, id)
	if err != nil {
		return Token{}, "", err
	}
	if version == "" {
		return Token{}, "", l.unsure(refuseToken("token unknown",
			fmt.Errorf("there is no join token %s, or it ended long ago", id)))
	}
	if subtle.ConstantTimeCompare([]byte(hex.EncodeToString(hash[:])), []byte(t.Hash)) != 1 {
		return Token{}, "", refuseToken("token tampered",
			fmt.Errorf("join token %s has another secret: it is mistyped, or somebody guesses", id))
	}
	if !t.Revoked.IsZero() {
		return Token{}, "", refuseToken("token revoked", fmt.Errorf("join token %s was revoked at %s", id,
			t.Revoked.Format(time.RFC3339)))
	}
	if !now.Before(t.Expires) {
		return Token{}, "", refuseToken("token expired", fmt.Errorf("join token %s ended at %s", id,
			t.Expires.Format(time.RFC3339)))
	}
	return t, version, nil
}

// retry does a change again when somebody else's was first.
func (l *Ledger) retry(change func() error) error {
	var err error
	for range maxTries {
		if err = change(); !errors.Is(err, record.ErrConflict) {
			return err
		}
	}
	return err
}
