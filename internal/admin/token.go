package admin

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"
)

// TokenRequest asks for a join token.
type TokenRequest struct {
	// Group is the WorkloadGroup that who joins becomes a member of: "shop/web".
	Group string `json:"group"`
	// TTL is how long the token can be used, "1h30m". Empty: 1h.
	TTL string `json:"ttl,omitempty"`
}

// Token is a join token that was made. This is the only time that it is told.
type Token struct {
	ID    string `json:"id"`
	Group string `json:"group"`
	// Identity is what who joins with it becomes, a SPIFFE ID.
	Identity string    `json:"identity"`
	Expires  time.Time `json:"expires"`
	// Join is the command to run on the workload's machine, as words. It reads Token from its
	// standard input.
	Join []string `json:"join"`
	// Token is the secret that proves the membership of Group.
	Token string `json:"token"`
	// Notes are what is worth knowing before it is run, such as that the address in it may not be
	// the right one.
	Notes []string `json:"notes,omitempty"`
}

// TokenStatus is what is known of a join token; the token itself is not.
type TokenStatus struct {
	ID       string    `json:"id"`
	Group    string    `json:"group"`
	Identity string    `json:"identity,omitempty"`
	Created  time.Time `json:"created"`
	// By is who made it.
	By      string    `json:"by,omitempty"`
	Expires time.Time `json:"expires"`
	// State is "unused", "used", "expired" or "revoked".
	State string `json:"state"`
	// UsedBy is the workload that joined with it, "shop/web-1", and UsedAt when; empty and zero
	// before.
	UsedBy string    `json:"usedBy,omitempty"`
	UsedAt time.Time `json:"usedAt,omitzero"`
}

// Tokens makes and revokes join tokens. Safe for concurrent use.
type Tokens interface {
	// CreateToken makes a token for who asks. Errors: ErrNotFound for the group, ErrInvalid.
	CreateToken(ctx context.Context, r TokenRequest, who string) (Token, error)
	// ListTokens lists those that can be used and those of late that cannot any more.
	ListTokens(ctx context.Context) ([]TokenStatus, error)
	// RevokeToken makes a token useless; the workload that one made which was used stays. Errors:
	// ErrNotFound.
	RevokeToken(ctx context.Context, id, who string) error
}

func (s *Server) tokenRoutes() []route {
	t := s.cfg.Tokens
	return []route{
		{"POST /v1/join-tokens", Operator, t != nil, func(r *http.Request) (any, error) {
			var q TokenRequest
			if err := decode(r, &q); err != nil {
				return nil, err
			}
			if len(q.Group) > maxName || len(q.TTL) > maxName {
				return nil, NewError(ErrInvalid, fmt.Sprintf("the group or the time is too long: want %d bytes at most",
					maxName))
			}
			return t.CreateToken(r.Context(), q, who(r))
		}},
		{"GET /v1/join-tokens", Viewer, t != nil, func(r *http.Request) (any,
			error) {
			return t.ListTokens(r.Context())
		}},
		{"DELETE /v1/join-tokens/{id}", Operator, t != nil, func(r *http.Request) (any, error) {
			return struct{}{}, t.RevokeToken(r.Context(), r.PathValue("id"), who(r))
		}},
	}
}

// CreateToken asks for a join token; see Tokens.
func (c *Client) CreateToken(ctx context.Context, r TokenRequest) (Token, error) {
	return post[Token](ctx, c, "/v1/join-tokens", r)
}

// ListTokens asks for the join tokens; see Tokens.
func (c *Client) ListTokens(ctx context.Context) ([]TokenStatus, error) {
	return get[[]TokenStatus](ctx, c, "/v1/join-tokens", nil)
}

// RevokeToken makes a join token useless; see Tokens.
func (c *Client) RevokeToken(ctx context.Context, id string) error {
	_, err := ask[struct{}](ctx, c, http.MethodDelete, "/v1/join-tokens/"+url.PathEscape(id), nil, nil)
	return err
}
