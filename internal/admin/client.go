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
	"syscall"
	"time"

	"github.com/ashore-mesh/ashore/internal/task"
)

// dialTime is how long a running ashored may take to accept a connection.
const dialTime = 5 * time.Second

// Client calls a running ashored. Its errors are for operators: what is wrong and what to do.
type Client struct {
	socket  string
	timeout time.Duration // zero: as long as the context lasts
	http    *http.Client
}

// reloadTime is how long the socket may be missing while ashored reloads its settings.
const reloadTime = time.Second

// NewClient returns a client of the unix socket path. It connects with the first call.
func NewClient(socket string) *Client {
	return &Client{socket: socket, http: &http.Client{Transport: &http.Transport{
		DisableKeepAlives:     true, // the program ends after a call or two
		ExpectContinueTimeout: dialTime,
		DialContext:           func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx, socket) },
	}}}
}

// dial connects to the socket. It tries again for reloadTime while nothing listens there.
func dial(ctx context.Context, socket string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: dialTime}
	for end := time.Now().Add(reloadTime); ; {
		conn, err := dialer.DialContext(ctx, "unix", socket)
		missing := errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED)
		if !missing || time.Now().After(end) || !task.Sleep(ctx, 50*time.Millisecond) {
			return conn, err
		}
	}
}

// Within limits how long each later call may take; zero is no limit. It returns c.
func (c *Client) Within(timeout time.Duration) *Client {
	c.timeout = timeout
	return c
}

// Send sends a call and returns its response. Errors: those of the handler; ErrNotRunning,
// ErrEnded, ErrSilent.
func Send[Q, A any](ctx context.Context, c *Client, call Call[Q, A], q Q) (out A, err error) {
	if c.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, c.timeout, ErrSilent)
		defer cancel()
	}
	request, err := json.Marshal(q)
	if err != nil {
		return out, fmt.Errorf("encode %s: %w", call, err)
	}
	code, text, err := c.post(ctx, apiPath+string(call), request)
	if err != nil {
		return out, c.explain(ctx, err)
	}
	var refusal Refusal
	into := any(&out)
	if code != http.StatusOK {
		into = &refusal
	}
	if err := json.Unmarshal(text, into); err != nil {
		return out, fmt.Errorf("understand the answer of ashored at %s (is it of another version?): %w", c.socket, err)
	}
	if code != http.StatusOK {
		return out, refusal.received()
	}
	return out, nil
}

// post sends a request and reads its response.
func (c *Client) post(ctx context.Context, path string, body []byte) (code int, text []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://ashored"+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Expect", "100-continue") // a server that refuses the user reads no files
	resp, err := c.http.Do(req)
	if err != nil {
		return 0, nil, err
	}
	text, err = io.ReadAll(resp.Body)
	return resp.StatusCode, text, errors.Join(err, resp.Body.Close())
}

// explain returns why there is no response, and what to do.
func (c *Client) explain(ctx context.Context, err error) error {
	op, ok := errors.AsType[*net.OpError](err)
	switch {
	case errors.Is(context.Cause(ctx), ErrSilent):
		return NewError(ErrSilent, "ashored did not answer at %s within %s: it was stopped, or has too much to do; "+
			"its log and \"ps\" say more, and --timeout waits longer", c.socket, c.timeout)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return NewError(ErrNotRunning, "ashored is not running: nothing listens at the admin socket %s. "+
			"Start ashored, or name the socket of the running one with --socket", c.socket)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("the admin socket %s is closed to this user: root, the user that ashored runs as and the "+
			"groups of its setting admin.roles may use it; run this as one of them (sudo): %w", c.socket, err)
	case ok && op.Op == "dial", ctx.Err() != nil:
		return fmt.Errorf("ask ashored at %s: %w", c.socket, err)
	}
	return NewError(ErrEnded, "ashored ended while it was asked at %s: its log says why (%v)", c.socket, err)
}
