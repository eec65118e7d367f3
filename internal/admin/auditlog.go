package admin

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/ashore-mesh/ashore/internal/audit"
)

// maxTail limits how many events are read at once.
const maxTail = 10_000

// AuditLog is what reads the audit log: audit.Log does.
type AuditLog interface {
	Tail(ctx context.Context, n int, follow bool, emit func(audit.Event) error) error
}

// auditTail answers with a stream of events, one a line.
func (s *Server) auditTail(w http.ResponseWriter, r *http.Request) error {
	n, follow, err := tailOf(r)
	if err != nil {
		return err
	}
	release, err := s.stream(follow)
	if err != nil {
		return err
	}
	defer release()
	return s.lines(w, r, follow, func(ctx context.Context, emit func(any) error) error {
		return s.cfg.Audit.Tail(ctx, n, follow, func(e audit.Event) error { return emit(e) })
	})
}

// tailOf is what is asked for.
func tailOf(r *http.Request) (n int, follow bool, err error) {
	n = 20
	if text := r.URL.Query().Get("n"); text != "" {
		if n, err = strconv.Atoi(text); err != nil || n < 0 || n > maxTail {
			return 0, false, NewError(ErrInvalid, fmt.Sprintf("n is %q: want a number from 0 to %d", text, maxTail))
		}
	}
	if text := r.URL.Query().Get("follow"); text != "" {
		if follow, err = strconv.ParseBool(text); err != nil {
			return 0, false, NewError(ErrInvalid, fmt.Sprintf("follow is %q: want true or false", text))
		}
	}
	return n, follow, nil
}

// TailAudit hands emit the latest n events of the audit log and, with follow, every later one until
// ctx ends, which is no error then.
func (c *Client) TailAudit(ctx context.Context, n int, follow bool, emit func(audit.Event) error) error {
	q := url.Values{"n": {strconv.Itoa(n)}, "follow": {strconv.FormatBool(follow)}}
	return readLines(ctx, c, "/v1/audit", q, follow, "the audit log was followed", emit)
}
