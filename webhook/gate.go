package webhook

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/ashore-mesh/ashore/internal/ratelimit"
)

const (
	// burstTime is for how long an address may save up requests that it did not make.
	burstTime = 10 * time.Second
	// chargeUnit is how much of a body counts as one more request, in bytes.
	chargeUnit = 16 << 10
	// bodies is how many bodies of full size are held at once, half of them of one address.
	bodies = 8
	// firstRead is how much memory a body has at first, in bytes.
	firstRead = 4 << 10
	// smallBody is how large a body may be that neither needs room among large ones nor waits for
	// them, in bytes: hardly an object is larger.
	smallBody = 64 << 10
)

// gate bounds what requests may cost, before they do. Safe for concurrent use.
type gate struct {
	limiter  ratelimit.Limiter
	requests int           // how many there may be at once
	bytes    int64         // how much memory their bodies may have at once, beyond smallBody each
	maxBytes int64         // how large one may be
	timeout  time.Duration // for a body to come, and to wait for its turn
	// small are the small bodies that are read by the parser at once, and large the bytes of all
	// others; each counts as least of them at least. Either leaves a half of the processors to
	// others.
	small, large *semaphore.Weighted
	least        int64

	mu         sync.Mutex
	all        household                   // guarded by mu
	households map[netip.Prefix]*household // guarded by mu
}

// household is what an address has at once.
type household struct {
	requests int
	bytes    int64
}

func newGate(c Config) *gate {
	processors := int64(max(1, runtime.GOMAXPROCS(0)/2))
	return &gate{
		limiter: ratelimit.Limiter{Burst: int(burstTime/time.Second) * c.Rate,
			Every: time.Second / time.Duration(c.Rate)},
		requests: c.Requests, bytes: bodies * c.MaxBytes, maxBytes: c.MaxBytes, timeout: c.Timeout,
		small: semaphore.NewWeighted(processors), large: semaphore.NewWeighted(c.MaxBytes), least: max(1,
			c.MaxBytes/processors),
		households: map[netip.Prefix]*household{},
	}
}

// visit is one request inside.
type visit struct {
	gate  *gate
	from  netip.Prefix
	bytes int64 // of memory that is reserved for it
}

// enter lets a request in. Errors: a refusal.
func (g *gate) enter(from netip.Prefix, now time.Time) (*visit, error) {
	if may, _ := g.limiter.Allow(from.String(), now); !may {
		return nil, refusef(http.StatusTooManyRequests,
			"too many requests from %s: try again later, or have the setting webhook.rate of the control plane raised", from)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	h := g.households[from]
	if h == nil {
		h = &household{}
		g.households[from] = h
	}
	if g.all.requests >= g.requests || h.requests >= (g.requests+1)/2 {
		g.forget(from, h)
		return nil, refusef(http.StatusServiceUnavailable,
			"too many requests at once: try again in a moment, or have the setting webhook.requests of the control plane raised")
	}
	h.requests++
	g.all.requests++
	return &visit{gate: g, from: from}, nil
}

// forget drops a household that has nothing. The caller holds mu.
func (g *gate) forget(from netip.Prefix, h *household) {
	if h.requests == 0 {
		delete(g.households, from)
	}
}

// inside is how many requests there are.
func (g *gate) inside() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.all.requests
}

// leave is the end of a request.
func (v *visit) leave() {
	g := v.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	h := g.households[v.from]
	h.requests--
	h.bytes -= v.bytes
	g.all.requests--
	g.all.bytes -= v.bytes
	g.forget(v.from, h)
}

// reserve has n more bytes of memory for a request. Errors: a refusal.
func (v *visit) reserve(n int64) error {
	g := v.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	h := g.households[v.from]
	if g.all.bytes+n > g.bytes || h.bytes+n > g.bytes/2 {
		return refusef(http.StatusServiceUnavailable, "too much is being sent at once: try again in a moment")
	}
	v.bytes += n
	h.bytes += n
	g.all.bytes += n
	return nil
}

// read reads a body, for which memory is reserved as it comes; length is what its sender says of
// it, negative when nothing. Errors: a refusal.
func (v *visit) read(body io.Reader, length int64) ([]byte, error) {
	g := v.gate
	if length > g.maxBytes {
		return nil, g.tooLarge()
	}
	var data []byte
	for {
		if len(data) == cap(data) {
			// one more than allowed shows that there is too much
			more := min(max(firstRead, 2*int64(cap(data))), g.maxBytes+1)
			if length >= int64(cap(data)) {
				more = min(more, length+1) // the last one is for the end to show
			}
			if err := v.reserve(max(smallBody, more) - max(smallBody, int64(cap(data)))); err != nil {
				return nil, err
			}
			data = append(make([]byte, 0, more), data...)
		}
		n, err := body.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
		switch {
		case int64(len(data)) > g.maxBytes:
			return nil, g.tooLarge()
		case errors.Is(err, io.EOF):
			g.limiter.Charge(v.from.String(), len(data)/chargeUnit, time.Now())
			return data, nil
		case errors.Is(err, os.ErrDeadlineExceeded):
			return nil, refusef(http.StatusRequestTimeout,
				"the body did not come within %s: send it faster, or have the setting webhook.timeout of the control plane raised", g.timeout)
		case err != nil:
			return nil, refusef(http.StatusBadRequest, "the body cannot be read: %v", err)
		}
	}
}

func (g *gate) tooLarge() error {
	return refusef(http.StatusRequestEntityTooLarge,
		"the body has more than %d bytes: send less, or have the setting webhook.maxBytes of the control plane raised", g.maxBytes)
}

// turn waits until a body of that size may be read by the parser, and returns what ends it. Errors:
// a refusal.
func (g *gate) turn(ctx context.Context, size int) (done func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, g.timeout)
	defer cancel()
	turns, weight := g.small, int64(1)
	if size > smallBody {
		turns, weight = g.large, min(max(int64(size), g.least), g.maxBytes)
	}
	if err := turns.Acquire(ctx, weight); err != nil {
		return nil, refusef(http.StatusServiceUnavailable, "too much waits to be looked at: try again in a moment")
	}
	return func() { turns.Release(weight) }, nil
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
