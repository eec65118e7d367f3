package harness

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
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
		DialContext: func(ctx context.Context, _, _ string) (net.Conn,
			error) {
			return ns.Dial(ctx, "tcp", address)
		},
		MaxIdleConnsPerHost: 16,
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &Client{address: address, http: http.Client{
		Transport:     transport,
		Timeout:       20 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Fresh makes every call of the client use a connection of its own.
func (c *Client) Fresh() *Client {
	if t, ok := c.http.Transport.(*http.Transport); ok {
		t.DisableKeepAlives = true
	}
	return c
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
