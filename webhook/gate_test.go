package webhook

import (
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// wantCode wants a refusal with that status; 0: none.
func wantCode(t *testing.T, what string, err error, code int) {
	t.Helper()
	var no *refusal
	switch {
	case code == 0 && err == nil:
	case code == 0 || !errors.As(err, &no) || no.code != code:
		t.Errorf("%s: %v, want status %d", what, err, code)
	}
}

// There are only so many requests at once.
func TestGateRequests(t *testing.T) {
	t.Parallel()
	g := newServer(t, Config{Requests: 2}).gate
	first, err := g.enter("10.0.0.1", time.Now())
	wantCode(t, "the first", err, 0)
	_, err = g.enter("10.0.0.1", time.Now())
	wantCode(t, "the second", err, 0)
	_, err = g.enter("10.0.0.2", time.Now())
	wantCode(t, "the third", err, http.StatusServiceUnavailable)
	first()
	_, err = g.enter("10.0.0.2", time.Now())
	wantCode(t, "one after the first left", err, 0)
}

// An address makes so many requests a second.
func TestGateRate(t *testing.T) {
	t.Parallel()
	g := newServer(t, Config{Rate: 1}).gate
	now := time.Now()
	enter := func(from string, code int) {
		t.Helper()
		leave, err := g.enter(from, now)
		wantCode(t, from, err, code)
		if err == nil {
			leave()
		}
	}
	for range 10 {
		enter("10.0.0.1", 0)
	}
	enter("10.0.0.1", http.StatusTooManyRequests)
	enter("10.0.0.2", 0)
	now = now.Add(time.Second)
	enter("10.0.0.1", 0)
	enter("10.0.0.1", http.StatusTooManyRequests)
}

// No more is parsed at once than one body may have, and a request that waits too long is refused.
func TestGateParse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const most = 1 << 20
		g := newServer(t, Config{MaxBytes: most, Timeout: time.Second}).gate
		first, err := g.parse(t.Context(), most)
		wantCode(t, "the first", err, 0)
		_, err = g.parse(t.Context(), 1)
		wantCode(t, "a second one", err, http.StatusServiceUnavailable)
		time.AfterFunc(time.Second/2, first)
		third, err := g.parse(t.Context(), most)
		wantCode(t, "one that waited", err, 0)
		third()
	})
}
