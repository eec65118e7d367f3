package admin

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/ashore-mesh/ashore/internal/audit"
)

const (
	// maxTail bounds how many events are read at once.
	maxTail = 10_000
	// maxFollowers bounds how many follow the audit log at once.
	maxFollowers = 8
	// tailError is the trailer that says why the stream ended early.
	tailError = "Ashore-Error"
	// maxAuditLine bounds a line of the stream, in bytes.
	maxAuditLine = 1 << 20
)

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
	leave, err := s.readAudit(follow)
	if err != nil {
		return err
	}
	defer leave()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	go func() {
		select {
		case <-s.ending:
			cancel()
		case <-ctx.Done():
		}
	}()
	w.Header().Set("Content-Type", "application/jsonl")
	w.Header().Set("Trailer", tailError)
	c := http.NewResponseController(w)
	out := json.NewEncoder(w)
	if follow {
		if err := c.Flush(); err != nil { // the asker is to know that it works before the first event
			return nil
		}
	}
	err = s.cfg.Audit.Tail(ctx, n, follow, func(e audit.Event) error {
		if err := c.SetWriteDeadline(time.Now().Add(answerTime)); err != nil {
			return err
		}
		if err := out.Encode(e); err != nil || !follow {
			return err
		}
		return c.Flush()
	})
	if err != nil && r.Context().Err() == nil { // else the asker has gone
		s.cfg.Log.Warn("audit log not read to its end", "by", who(r), "error", err)
		w.Header().Set(tailError, printableError(err))
	}
	return nil
}

// printableError is an error as the value of a header.
func printableError(err error) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, err.Error())
}

// readAudit takes a place among those who follow, or among the requests at work. Errors: ErrBusy.
func (s *Server) readAudit(follow bool) (leave func(), err error) {
	places, text := s.busy, fmt.Sprintf("%d requests are at work already: try again", maxRequests)
	if follow {
		places, text = s.following, fmt.Sprintf("%d follow the audit log already: end one of them", maxFollowers)
	}
	select {
	case places <- struct{}{}:
		return func() { <-places }, nil
	default:
		return nil, NewError(ErrBusy, text)
	}
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

// TailAudit hands emit the latest n events of the audit log and, with follow, every later one until ctx ends, which is
// no error then.
func (c *Client) TailAudit(ctx context.Context, n int, follow bool, emit func(audit.Event) error) error {
	if follow {
		unbounded := *c
		unbounded.timeout = 0
		c = &unbounded
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	resp, err := c.do(ctx, http.MethodGet, "/v1/audit", url.Values{"n": {strconv.Itoa(n)}, "follow": {strconv.FormatBool(follow)}}, nil)
	if err != nil {
		if follow && ctx.Err() != nil {
			return nil
		}
		return err
	}
	defer func() { _ = resp.Body.Close() }() // it was read only
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, maxAuditLine)
	for lines.Scan() {
		var e audit.Event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			if lines.Err() != nil {
				break // half a line: the stream was cut
			}
			return fmt.Errorf("understand the answer of ashored at %s (is it of another version?): %w", c.socket, err)
		}
		if err := emit(e); err != nil {
			return err
		}
	}
	switch err := lines.Err(); {
	case follow && ctx.Err() != nil && !errors.Is(context.Cause(ctx), ErrSilent):
		return nil
	case err != nil:
		return c.explain(ctx, err)
	case resp.Trailer.Get(tailError) != "":
		return errors.New(resp.Trailer.Get(tailError))
	case follow:
		return NewError(ErrNotRunning, fmt.Sprintf("ashored ended while the audit log was followed at %s", c.socket))
	}
	return nil
}
