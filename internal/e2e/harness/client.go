package harness

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"
)

// Request is one call through a proxy.
type Request struct {
	// Method is GET when empty.
	Method string
	// Host is the name that is called, with a port when it is not the listener's.
	Host string
	// Path begins with a slash; "/" when empty.
	Path string
	// Header is sent as it is.
	Header map[string]string
}

// Answer is what came back.
type Answer struct {
	Status int
	Header http.Header
	// Seen is the body when a Backend answered; else Body is the text.
	Seen Seen
	Body string
}

// Client calls one address, whatever host a request names. Every client has connections of its own.
type Client struct {
	address string
	http    http.Client
}

// NewClient makes a client of the listener at address, "127.0.0.2:80".
func NewClient(t testing.TB, address string) *Client { return (*Namespace)(nil).Client(t, address) }

// Client makes a client in the namespace.
func (ns *Namespace) Client(t testing.TB, address string) *Client {
	transport := &http.Transport{
		DialContext:         func(ctx context.Context, _, _ string) (net.Conn, error) { return ns.Dial(ctx, "tcp", address) },
		MaxIdleConnsPerHost: 16,
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &Client{address: address, http: http.Client{
		Transport:     transport,
		Timeout:       20 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Do makes one call. An error says that no answer came.
func (c *Client) Do(r Request) (Answer, error) {
	if r.Path == "" {
		r.Path = "/"
	}
	req, err := http.NewRequest(r.Method, "http://"+c.address+r.Path, nil)
	if err != nil {
		return Answer{}, err
	}
	req.Host = r.Host
	for k, v := range r.Header {
		req.Header.Set(k, v)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return Answer{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return Answer{}, err
	}
	a := Answer{Status: resp.StatusCode, Header: resp.Header, Body: string(body)}
	if json.Unmarshal(body, &a.Seen) != nil {
		a.Seen = Seen{} // not from a Backend
	}
	return a, nil
}

// Want calls until the answer is as check wants it.
func (c *Client) Want(t testing.TB, what string, r Request, check func(Answer) error) {
	t.Helper()
	Eventually(t, what, func() error {
		a, err := c.Do(r)
		if err != nil {
			return err
		}
		return check(a)
	})
}

// From checks that a backend of that name answered with 200.
func From(backend string) func(Answer) error {
	return func(a Answer) error {
		if a.Status != http.StatusOK || a.Seen.Backend != backend {
			return fmt.Errorf("got %d from %q (%.200s), want 200 from %q", a.Status, a.Seen.Backend, a.Body, backend)
		}
		return nil
	}
}

// Status checks the status of an answer.
func Status(want int) func(Answer) error {
	return func(a Answer) error {
		if a.Status != want {
			return fmt.Errorf("got %d (%.200s), want %d", a.Status, a.Body, want)
		}
		return nil
	}
}

// Load is a steady stream of calls that records what fails.
type Load struct {
	stop chan struct{}
	done sync.WaitGroup

	mu       sync.Mutex
	total    int            // guarded by mu
	failures map[string]int // guarded by mu
	answers  map[string]int // guarded by mu, by backend
}

// StartLoad calls from several workers, each a few hundred times a second, until Stop. An answer
// fails when it is not 200.
func StartLoad(t testing.TB, c *Client, r Request) *Load {
	l := &Load{stop: make(chan struct{}), failures: map[string]int{}, answers: map[string]int{}}
	for range 4 {
		l.done.Go(func() {
			for {
				select {
				case <-l.stop:
					return
				case <-time.After(3 * time.Millisecond):
				}
				l.record(c.Do(r))
			}
		})
	}
	t.Cleanup(func() { l.Stop() })
	return l
}

func (l *Load) record(a Answer, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total++
	switch {
	case err != nil:
		l.failures[err.Error()]++
	case a.Status != http.StatusOK:
		l.failures[fmt.Sprintf("%d %.120s", a.Status, a.Body)]++
	default:
		l.answers[a.Seen.Backend]++
	}
}

// Total is how many calls were made so far.
func (l *Load) Total() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.total
}

// Failures is how many calls failed so far.
func (l *Load) Failures() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, k := range l.failures {
		n += k
	}
	return n
}

// Stop ends the load; it may be called again.
func (l *Load) Stop() {
	select {
	case <-l.stop:
	default:
		close(l.stop)
	}
	l.done.Wait()
}

// Clean ends the load and fails the test when a single call failed, or fewer than least were made.
func (l *Load) Clean(t testing.TB, least int) {
	t.Helper()
	l.Stop()
	for _, text := range slices.Sorted(maps.Keys(l.failures)) {
		t.Errorf("%d of %d calls failed: %s", l.failures[text], l.total, text)
	}
	if l.total < least {
		t.Errorf("only %d calls were made, the test means to make %d", l.total, least)
	}
	t.Logf("%d calls, answered by %v", l.total, l.answers)
}
