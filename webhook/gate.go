package webhook

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/ashore-mesh/ashore/internal/ratelimit"
)

// burstTime is for how long an address may save up requests that it did not make.
const burstTime = 10 * time.Second

// gate limits what requests cost. Safe for concurrent use.
type gate struct {
	limiter  ratelimit.Limiter   // requests of each address
	requests *semaphore.Weighted // requests at once
	parser   *semaphore.Weighted // bytes that are parsed at once
	maxBytes int64               // how large a body may be
	timeout  time.Duration       // for a body to arrive, and to wait for the parser
}

func newGate(c Config) *gate {
	return &gate{
		limiter: ratelimit.Limiter{Burst: int(burstTime/time.Second) * c.Rate,
			Every: time.Second / time.Duration(c.Rate)},
		requests: semaphore.NewWeighted(int64(c.Requests)),
		parser:   semaphore.NewWeighted(c.MaxBytes),
		maxBytes: c.MaxBytes,
		timeout:  c.Timeout,
	}
}

// enter admits a request until leave is called. Errors: a refusal.
func (g *gate) enter(from string, now time.Time) (leave func(), err error) {
	if ok, _ := g.limiter.Allow(from, now); !ok {
		return nil, refusef(http.StatusTooManyRequests,
			"too many requests from %s: try again later", from)
	}
	if !g.requests.TryAcquire(1) {
		return nil, refusef(http.StatusServiceUnavailable, "too many requests at once: try again in a moment")
	}
	return func() { g.requests.Release(1) }, nil
}

// read reads the body of a request. Errors: a refusal.
func (g *gate) read(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	c := http.NewResponseController(w)
	_ = c.SetReadDeadline(time.Now().Add(g.timeout)) // where it cannot be set, the server's ReadTimeout holds
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, g.maxBytes))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, refusef(http.StatusRequestEntityTooLarge,
			"the body has more than %d bytes: send less at once", g.maxBytes)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, refusef(http.StatusRequestTimeout,
			"the body did not arrive within %s: send it faster", g.timeout)
	case err != nil:
		return nil, refusef(http.StatusBadRequest, "the body cannot be read: %v", err)
	}
	_ = c.SetReadDeadline(time.Time{}) // else it would end the wait for the parser
	return data, nil
}

// parse waits until a body of that size may be parsed, and returns what to call afterwards. Errors:
// a refusal.
func (g *gate) parse(ctx context.Context, size int) (done func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, g.timeout)
	defer cancel()
	if err := g.parser.Acquire(ctx, int64(size)); err != nil {
		return nil, refusef(http.StatusServiceUnavailable, "too many requests wait to be validated: try again in a moment")
	}
	return func() { g.parser.Release(int64(size)) }, nil
}

// refusal is why a request is not answered.
type refusal struct {
	code int
	text string
}

func (r *refusal) Error() string { return r.text }

func refusef(code int, format string, args ...any) *refusal {
	return &refusal{code, fmt.Sprintf(format, args...)}
}
