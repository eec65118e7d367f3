package admin

import (
	"bytes"
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
		DisableKeepAlives:     true, // one question and done: nothing stays open
		ExpectContinueTimeout: dialTime,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", socket)
		},
	}}}
}

// Within bounds how long each later question may take, its answer included; zero is no bound. It
// returns c.
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

// Objects asks for objects that are in use; see Backend. Errors: ErrNotFound, ErrInvalid.
func (c *Client) Objects(ctx context.Context, kind, namespace, name string) ([]Object, error) {
	return get[[]Object](ctx, c, "/v1/objects", url.Values{"kind": {kind}, "namespace": {namespace}, "name": {name}})
}

// Dump asks what a proxy is sent; see Backend. Errors: ErrNotFound, ErrInvalid.
func (c *Client) Dump(ctx context.Context, proxy, typ string) (Dump, error) {
	return get[Dump](ctx, c, "/v1/dump", url.Values{"proxy": {proxy}, "type": {typ}})
}

// get asks for path and decodes the answer.
func get[T any](ctx context.Context, c *Client, path string, query url.Values) (T, error) {
	return ask[T](ctx, c, http.MethodGet, path, query, nil)
}

// post asks with a body and decodes the answer.
func post[T any](ctx context.Context, c *Client, path string, body any) (T, error) {
	return ask[T](ctx, c, http.MethodPost, path, nil, body)
}

// ask asks one question and decodes the answer.
func ask[T any](ctx context.Context, c *Client, method, path string, query url.Values, question any) (T, error) {
	var out T
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	resp, err := c.do(ctx, method, path, query, question)
	if err != nil {
		return out, err
	}
	body, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return out, c.explain(ctx, fmt.Errorf("read its answer: %w", err))
	}
	if err := json.Unmarshal(body, &out); err != nil {
		return out, fmt.Errorf("understand the answer of ashored at %s (is it of another version?): %w", c.socket, err)
	}
	return out, nil
}

// bounded is ctx with the client's timeout.
func (c *Client) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if c.timeout == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, c.timeout, ErrSilent)
}

// do asks, and returns the answer when it is none of an error; its body is to be closed.
func (c *Client) do(ctx context.Context, method, path string, query url.Values, question any) (*http.Response, error) {
	var body io.Reader
	stream, streams := question.(streamed)
	switch {
	case streams:
		body = stream
	case question != nil:
		b, err := json.Marshal(question)
		if err != nil {
			return nil, fmt.Errorf("ask %s: %w", path, err)
		}
		body = bytes.NewReader(b)
	}
	u := url.URL{Scheme: "http", Host: "ashored", Path: path, RawQuery: query.Encode()}
	req, err := http.NewRequestWithContext(ctx, method, u.String(), body)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", path, err)
	}
	if streams {
		req.Header.Set("Expect", "100-continue")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		if cause := unsentBy(err); cause != nil {
			return nil, cause
		}
		return nil, c.explain(ctx, err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	text, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return nil, c.explain(ctx, fmt.Errorf("read its answer: %w", err))
	}
	return nil, refusal(resp, text)
}

// refusal is the error that the server answered with.
func refusal(resp *http.Response, body []byte) error {
	var told refusalBody
	if err := json.Unmarshal(body, &told); err != nil || told.Error == "" {
		told.Error = "ashored answered " + resp.Status
	}
	if len(told.Problems)+len(told.Conflicts) > 0 {
		return &Refusal{Text: told.Error, Is: sentinel(resp.StatusCode), Problems: told.Problems,
			Conflicts: told.Conflicts}
	}
	return NewError(sentinel(resp.StatusCode), told.Error)
}

// explain says why nobody answered, and what to do.
func (c *Client) explain(ctx context.Context, err error) error {
	switch {
	case errors.Is(context.Cause(ctx), ErrSilent):
		return NewError(ErrSilent,
			fmt.Sprintf("ashored did not answer at %s within %s: it was stopped, or has too much to do; its log and \"ps\" say more, and --timeout waits longer", c.socket, c.timeout))
	case errors.Is(err, fs.ErrNotExist):
		return NewError(ErrNotRunning,
			fmt.Sprintf("ashored is not running: there is no admin socket %s. Start ashored, or name the socket of the running one with --socket", c.socket))
	case errors.Is(err, syscall.ECONNREFUSED):
		return NewError(ErrNotRunning,
			fmt.Sprintf("ashored is not running: nobody listens at its admin socket %s any more. Start it again, or name another socket with --socket", c.socket))
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, io.EOF), errors.Is(err,
		io.ErrUnexpectedEOF),
		errors.Is(err, net.ErrClosed), closedEarly(err):
		return NewError(ErrEnded, fmt.Sprintf("ashored ended while it was asked at %s: its log says why", c.socket))
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("the admin socket %s is closed to this user: root, the user that ashored runs as and whom its setting admin.roles names may use it; run this as one of them (sudo): %w", c.socket, err)
	default:
		return fmt.Errorf("ask ashored at %s: %w", c.socket, err)
	}
}

// closedEarly says that the other end closed the connection before the question was on its way. The
// error has no name outside net/http: transport.go, errServerClosedIdle.
func closedEarly(err error) bool {
	u, ok := errors.AsType[*url.Error](err)
	return ok && u.Err.Error() == "http: server closed idle connection"
}
