package adminapi

import (
	"context"
	"slices"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/push"
)

func notFound(format string, args ...any) error {
	return admin.NewError(admin.ErrNotFound, format, args...)
}

func invalid(format string, args ...any) error {
	return admin.NewError(admin.ErrInvalid, format, args...)
}

func conflict(format string, args ...any) error {
	return admin.NewError(admin.ErrConflict, format, args...)
}

// current returns the context that proxies are served from. Errors: admin.ErrConflict before the
// first one.
func (a *API) current() (*push.Context, error) {
	c := a.Published()
	if c == nil {
		return nil, conflict("there is no configuration yet")
	}
	return c, nil
}

// record writes what the caller did to the audit log, with err as its outcome. details are pairs of
// name and value.
func (a *API) record(ctx context.Context, action, target string, err error, details ...string) {
	e := audit.Event{Action: action, Actor: admin.Actor(ctx), Target: target, Details: map[string]string{}}
	for pair := range slices.Chunk(details, 2) {
		e.Details[pair[0]] = pair[1]
	}
	if err != nil {
		e.Outcome, e.Reason = audit.Failed, err.Error()
	}
	a.Record(e)
}
