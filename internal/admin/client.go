package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"syscall"
	"time"

	"github.com/ashore-mesh/ashore/internal/feed"
)

// dialTime is how long a running ashored may take to accept.
const dialTime = 5 * time.Second

// Client asks a running ashored. Its errors are for people: what is wrong and what to do.
type Client struct {
	socket  string
	timeout time.Duration // zero: as long as the context lasts
	http    *http.Client
}

// NewClient returns a client of the unix socket path. Nothing is opened until it asks.
func NewClient(socket string) *Client {
	dialer := net.Dialer{Timeout: dialTime}
	return &Client{socket: socket, http: &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true, // one question and done: nothing stays open
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", socket)
		},
	}}}
}

// Within bounds how long each later question may take, its answer included; zero is no bound. It returns c.
func (c *Client) Within(timeout time.Duration) *Client {
	c.timeout = timeout
	return c
}

// Version asks for the running version.
func (c *Client) Version(ctx context.Context) (Version, error) {
	return get[Version](ctx, c, "/v1/version", nil)
}

// Status asks how everything is.
func (c *Client) Status(ctx context.Context) (Status, error) {
	return get[Status](ctx, c, "/v1/status", nil)
}

// Problems asks what is wrong with the configuration.
func (c *Client) Problems(ctx context.Context) ([]feed.Problem, error) {
	return get[[]feed.Problem](ctx, c, "/v1/problems", nil)
}

// Objects asks for objects that are at work; see Backend. Errors: ErrNotFound, ErrInvalid.
func (c *Client) Objects(ctx context.Context, kind, namespace, name string) ([]Object, error) {
	return get[[]Object](ctx, c, "/v1/objects", url.Values{"kind": {kind}, "namespace": {namespace}, "name": {name}})
}

// Dump asks what a proxy is sent; see Backend. Errors: ErrNotFound, ErrInvalid.
func (c *Client) Dump(ctx context.Context, proxy, typ string) (Dump, error) {
	return get[Dump](ctx, c, "/v1/dump", url.Values{"proxy": {proxy}, "type": {typ}})
}

// get asks for path and decodes the answer.
func get[T any](ctx context.Context, c *Client, path string, query url.Values) (T, error) {
	var out T
	if c.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, c.timeout, ErrSilent)
		defer cancel()
	}
	u := url.URL{Scheme: "http", Host: "ashored", Path: path, RawQuery: query.Encode()}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return out, fmt.Errorf("ask %s: %w", path, err)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return out, c.explain(ctx, err)
	}
	body, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return out, c.explain(ctx, fmt.Errorf("read its answer: %w", err))
	}
	if resp.StatusCode != http.StatusOK {
		return out, refusal(resp, body)
	}
	if err := json.Unmarshal(body, &out); err != nil {
		return out, fmt.Errorf("understand the answer of ashored at %s (is it of another version?): %w", c.socket, err)
	}
	return out, nil
}

// refusal is the error that the server answered with.
func refusal(resp *http.Response, body []byte) error {
	var told struct{ Error string }
	if err := json.Unmarshal(body, &told); err != nil || told.Error == "" {
		told.Error = "ashored answered " + resp.Status
	}
	return NewError(sentinel(resp.StatusCode), told.Error)
}

// explain says why nobody answered, and what to do.
func (c *Client) explain(ctx context.Context, err error) error {
	switch {
	case errors.Is(context.Cause(ctx), ErrSilent):
		return NewError(ErrSilent, fmt.Sprintf("ashored did not answer at %s within %s: it was stopped, or has too much to do; its log and \"ps\" say more, and --timeout waits longer", c.socket, c.timeout))
	case errors.Is(err, fs.ErrNotExist):
		return NewError(ErrNotRunning, fmt.Sprintf("ashored is not running: there is no admin socket %s. Start ashored, or name the socket of the running one with --socket", c.socket))
	case errors.Is(err, syscall.ECONNREFUSED):
		return NewError(ErrNotRunning, fmt.Sprintf("ashored is not running: nobody listens at its admin socket %s any more. Start it again, or name another socket with --socket", c.socket))
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		errors.Is(err, net.ErrClosed), closedEarly(err):
		return NewError(ErrNotRunning, fmt.Sprintf("ashored ended while it was asked at %s: its log says why", c.socket))
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("the admin socket %s may be used by root and by the user that ashored runs as: run this as one of them (sudo): %w", c.socket, err)
	default:
		return fmt.Errorf("ask ashored at %s: %w", c.socket, err)
	}
}

// closedEarly says that the other end closed the connection before the question was on its way. The error has
// no name outside net/http: transport.go, errServerClosedIdle.
func closedEarly(err error) bool {
	u, ok := errors.AsType[*url.Error](err)
	return ok && u.Err.Error() == "http: server closed idle connection"
}
