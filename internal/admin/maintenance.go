package admin

import (
	"context"
	"net/http"
)

// AcceptRequest names the source whose removals are accepted.
type AcceptRequest struct {
	Source string `json:"source"`
}

// Accepted is the source, as it is named in logs.
type Accepted struct {
	Source string `json:"source"`
	// Removed is how many items were removed.
	Removed int `json:"removed"`
}

// ReleasedVIPs are the hosts whose virtual IPs were released.
type ReleasedVIPs struct {
	Hosts []string `json:"hosts"`
}

// Maintenance ends what ashored retains until an operator says so. Safe for concurrent use.
type Maintenance interface {
	// AcceptRemovals removes what is active although the source does not supply it any more.
	// Errors: ErrNotFound.
	AcceptRemovals(ctx context.Context, r AcceptRequest, who string) (Accepted, error)
	// ReleaseVIPs releases the virtual IPs of hosts that no replica has used for a week.
	ReleaseVIPs(ctx context.Context, who string) (ReleasedVIPs, error)
}

func (s *Server) maintenanceRoutes() []route {
	m := s.cfg.Maintenance
	return []route{
		{"POST /v1/sources/accept-removals", Operator, m != nil, func(r *http.Request) (any, error) {
			var q AcceptRequest
			if err := decode(r, &q); err != nil {
				return nil, err
			}
			return m.AcceptRemovals(r.Context(), q, who(r))
		}},
		{"POST /v1/vips/release", Operator, m != nil, func(r *http.Request) (any,
			error) {
			return m.ReleaseVIPs(r.Context(), who(r))
		}},
	}
}

// AcceptRemovals removes what is retained of a source; see Maintenance.
func (c *Client) AcceptRemovals(ctx context.Context, source string) (Accepted, error) {
	return post[Accepted](ctx, c, "/v1/sources/accept-removals", AcceptRequest{Source: source})
}

// ReleaseVIPs releases unused virtual IPs; see Maintenance.
func (c *Client) ReleaseVIPs(ctx context.Context) (ReleasedVIPs, error) {
	return post[ReleasedVIPs](ctx, c, "/v1/vips/release", struct{}{})
}
