package admin

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const (
	// linesError is the trailer that says why a stream ended early.
	linesError = "Ashore-Error"
	// maxLine bounds a line of a stream that a client reads, in bytes: a service may have many
	// thousand endpoints.
	maxLine = 64 << 20
)

// lines answers with what produce emits, a line of JSON each. With follow every line is sent at
// once, and the asker knows that it works before the first. Who reads none of them for answerTime
// is cut off. Errors before the first line are the caller's to answer; later ones go into a
// trailer.
func (s *Server) lines(w http.ResponseWriter, r *http.Request, follow bool,
	produce func(ctx context.Context, emit func(any) error) error) error {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	go func() {
		select {
		case <-s.ending:
			cancel()
		case <-ctx.Done():
		}
	}()
	c, out, begun := http.NewResponseController(w), json.NewEncoder(w), false
	begin := func() {
		if !begun {
			w.Header().Set("Content-Type", "application/jsonl")
			w.Header().Set("Trailer", linesError)
			begun = true
		}
	}
	if follow {
		begin()
		if err := c.Flush(); err != nil {
			return nil // the asker has gone
		}
	}
	err := produce(ctx, func(v any) error {
		begin()
		if err := c.SetWriteDeadline(time.Now().Add(answerTime)); err != nil {
			return err
		}
		if err := out.Encode(v); err != nil || !follow {
			return err
		}
		return c.Flush()
	})
	switch {
	case err != nil && !begun:
		return err
	case err != nil && r.Context().Err() == nil: // else the asker has gone
		s.cfg.Log.Warn("an answer was not sent to its end", "path", r.URL.Path, "by", who(r), "error", err)
		w.Header().Set(linesError, printableError(err))
	}
	begin()
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

// readLines asks for a stream and hands emit each of its lines. With follow no timeout holds, the
// end of ctx is no error, and that of the stream is one; what names what was followed.
func readLines[T any](ctx context.Context, c *Client, path string, query url.Values, follow bool, what string,
	emit func(T) error) error {
	if follow {
		unbounded := *c
		unbounded.timeout = 0
		c = &unbounded
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	resp, err := c.do(ctx, http.MethodGet, path, query, nil)
	if err != nil {
		if follow && ctx.Err() != nil {
			return nil
		}
		return err
	}
	defer func() { _ = resp.Body.Close() }() // it was read only
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		var v T
		if err := json.Unmarshal(lines.Bytes(), &v); err != nil {
			if lines.Err() != nil {
				break // half a line: the stream was cut
			}
			return fmt.Errorf("understand the answer of ashored at %s (is it of another version?): %w", c.socket, err)
		}
		if err := emit(v); err != nil {
			return err
		}
	}
	switch err := lines.Err(); {
	case follow && ctx.Err() != nil && !errors.Is(context.Cause(ctx), ErrSilent):
		return nil
	case err != nil:
		return c.explain(ctx, err)
	case resp.Trailer.Get(linesError) != "":
		return errors.New(resp.Trailer.Get(linesError))
	case follow:
		return NewError(ErrEnded, fmt.Sprintf("ashored ended while %s at %s", what, c.socket))
	}
	return nil
}
