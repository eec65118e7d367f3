package admin

import "time"

// TokenRequest asks for a join token.
type TokenRequest struct {
	// Group is the WorkloadGroup that who joins becomes a member of: "shop/web".
	Group string `json:"group"`
	// TTL is how long the token can be used, "1h30m". Empty: 1h.
	TTL string `json:"ttl,omitempty"`
}

// Token is a join token that was made. Token is not shown again.
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
	ID      string    `json:"id"`
	Group   string    `json:"group"`
	Created time.Time `json:"created"`
	// By is who made it.
	By      string    `json:"by,omitempty"`
	Expires time.Time `json:"expires"`
	// State is "unused", "used" or "expired".
	State string `json:"state"`
	// UsedBy is the workload that joined with it, "shop/web-1", and UsedAt when; empty and zero
	// before.
	UsedBy string    `json:"usedBy,omitempty"`
	UsedAt time.Time `json:"usedAt,omitzero"`
}

// TokenID names a join token.
type TokenID struct {
	ID string `json:"id"`
}
