package admin

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

// Workload is a workload that has, or had, certificates.
type Workload struct {
	// Name is "shop/web-1".
	Name     string `json:"name"`
	Identity string `json:"identity"`
	// Group is the WorkloadGroup that it joined; empty when it proved itself otherwise.
	Group  string    `json:"group,omitempty"`
	Joined time.Time `json:"joined,omitzero"`
	// Leaves are its certificates that have not ended, or the latest one; the latest last.
	Leaves []Leaf `json:"leaves,omitempty"`
	// Bundle names the set of roots that it said it has.
	Bundle string `json:"bundle,omitempty"`
	// Revoked says that it is; by which revocation stands in Revocations.
	Revoked bool `json:"revoked,omitempty"`
	// Proxies are the IDs of its proxies that are connected now.
	Proxies []string `json:"proxies,omitempty"`
	// Warning says that several machines go by its name at once, and what to do; empty: one does,
	// or none.
	Warning string `json:"warning,omitempty"`
	// Health is what one of these reported last of the workload: nil when none did, or it is not
	// registered.
	Health *Health `json:"health,omitempty"`
}

// Health is how a registered workload is, in the words of its agent.
type Health struct {
	Healthy bool `json:"healthy"`
	// Reason is why not; empty when it is healthy.
	Reason string    `json:"reason,omitempty"`
	At     time.Time `json:"at"`
}

// Leaf is one certificate of a workload.
type Leaf struct {
	// Serial is in hexadecimal digits.
	Serial   string    `json:"serial"`
	NotAfter time.Time `json:"notAfter"`
	// Revoked says that it is, by its serial or with its workload.
	Revoked bool `json:"revoked,omitempty"`
}

// Revocation is what is not trusted any more.
type Revocation struct {
	// Kind is "identity", "workload" or "serial", and Name which one.
	Kind   string    `json:"kind"`
	Name   string    `json:"name"`
	Reason string    `json:"reason,omitempty"`
	By     string    `json:"by,omitempty"`
	At     time.Time `json:"at"`
}

// WorkloadList is all that is known of workloads.
type WorkloadList struct {
	Workloads   []Workload   `json:"workloads"`
	Revocations []Revocation `json:"revocations"`
}

// RevokeRequest names what is to be revoked, or restored: one of the first three.
type RevokeRequest struct {
	// Identity is a SPIFFE ID, Workload a name such as "shop/web-1", Serial that of a certificate
	// in hexadecimal digits.
	Identity string `json:"identity,omitempty"`
	Workload string `json:"workload,omitempty"`
	Serial   string `json:"serial,omitempty"`
	// Reason is for the audit log, and for whoever lists revocations. At most 1024 bytes.
	Reason string `json:"reason,omitempty"`
	// Force revokes an identity that no workload has yet.
	Force bool `json:"force,omitempty"`
}

const (
	// maxName bounds an identity or the name of a workload, group or token, in bytes. Source of the
	// longest: SPIFFE-ID.md, 2.3.
	maxName = 2048
	// maxReason bounds an operator's words, in bytes.
	maxReason = 1024
)

// bounded refuses words that are too long to keep.
func bounded(reason string) error {
	if len(reason) > maxReason {
		return NewError(ErrInvalid, fmt.Sprintf("the reason has %d bytes: want %d at most", len(reason), maxReason))
	}
	return nil
}

// check says what keeps a request from naming one thing.
func (q RevokeRequest) check() error {
	named := 0
	for _, s := range []string{q.Identity, q.Workload, q.Serial} {
		if s != "" {
			named++
		}
		if len(s) > maxName {
			return NewError(ErrInvalid, fmt.Sprintf("%.40q… is too long for a name: want %d bytes at most", s, maxName))
		}
	}
	if named != 1 {
		return NewError(ErrInvalid, "name one of identity, workload and serial")
	}
	return bounded(q.Reason)
}

// Revoked is what a revocation, or its end, concerns.
type Revoked struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
	// Workloads are those that it concerns, as far as they are known; more may have the identity.
	Workloads []string `json:"workloads,omitempty"`
	// Proxies is how many are connected, to this replica or, as far as they are registered, to
	// another one, and not revoked themselves: they hear of it within a second. Others hear of it
	// when they connect, which whoever is refused never does.
	Proxies int `json:"proxies"`
	// Notes are what is worth knowing, such as how many hear of it, and what else is still revoked.
	Notes []string `json:"notes,omitempty"`
}

// Workloads shows, revokes and restores workloads. Safe for concurrent use.
type Workloads interface {
	ListWorkloads(ctx context.Context) (WorkloadList, error)
	// Revoke ends trust: when it returns, every peer that is connected refuses within a second; the
	// answer counts them. What was revoked already is no error. Errors: ErrInvalid; ErrNotFound for
	// a workload or serial that was never seen, and for an identity that nobody has, unless that is
	// forced.
	Revoke(ctx context.Context, r RevokeRequest, who string) (Revoked, error)
	// Restore undoes Revoke. Errors: ErrInvalid; ErrNotFound when that is not revoked.
	Restore(ctx context.Context, r RevokeRequest, who string) (Revoked, error)
}

func (s *Server) workloadRoutes() []route {
	w := s.cfg.Workloads
	change := func(f func(Workloads, context.Context, RevokeRequest, string) (Revoked, error)) func(*http.Request) (any,
		error) {
		return func(r *http.Request) (any, error) {
			var q RevokeRequest
			if err := decode(r, &q); err != nil {
				return nil, err
			}
			if err := q.check(); err != nil {
				return nil, err
			}
			return f(w, r.Context(), q, who(r))
		}
	}
	return []route{
		{"GET /v1/workloads", Viewer, w != nil, func(r *http.Request) (any,
			error) {
			return w.ListWorkloads(r.Context())
		}},
		{"POST /v1/workloads/revoke", Operator, w != nil, change(Workloads.Revoke)},
		{"POST /v1/workloads/restore", Operator, w != nil, change(Workloads.Restore)},
	}
}

// Workloads asks for all workloads and revocations.
func (c *Client) Workloads(ctx context.Context) (WorkloadList, error) {
	return get[WorkloadList](ctx, c, "/v1/workloads", nil)
}

// Revoke ends trust; see Workloads.
func (c *Client) Revoke(ctx context.Context, r RevokeRequest) (Revoked, error) {
	return post[Revoked](ctx, c, "/v1/workloads/revoke", r)
}

// Restore undoes Revoke; see Workloads.
func (c *Client) Restore(ctx context.Context, r RevokeRequest) (Revoked, error) {
	return post[Revoked](ctx, c, "/v1/workloads/restore", r)
}
