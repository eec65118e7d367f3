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

	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/feed"
)

// dialTime is how long a running ashored may take to accept a connection.
const dialTime = 5 * time.Second

// Client calls a running ashored. Its errors are for operators: what is wrong and what to do. Its
// methods send the calls of calls.go; the errors of a call are those of its handler in adminapi.
type Client struct {
	socket  string
	timeout time.Duration // zero: as long as the context lasts
	http    *http.Client
}

// NewClient returns a client of the unix socket path. It connects with the first call.
func NewClient(socket string) *Client {
	dialer := net.Dialer{Timeout: dialTime}
	return &Client{socket: socket, http: &http.Client{Transport: &http.Transport{
		DisableKeepAlives:     true, // the program ends after a call or two
		ExpectContinueTimeout: dialTime,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", socket)
		},
	}}}
}

// Within limits how long each later call may take; zero is no limit. It returns c.
func (c *Client) Within(timeout time.Duration) *Client {
	c.timeout = timeout
	return c
}

// Version returns the version of ashored.
func (c *Client) Version(ctx context.Context) (Version, error) {
	return call(ctx, c, CallVersion, None{})
}

// Status returns the state of ashored and of every proxy.
func (c *Client) Status(ctx context.Context) (Status, error) { return call(ctx, c, CallStatus, None{}) }

// Problems returns the problems of the configuration.
func (c *Client) Problems(ctx context.Context) ([]feed.Problem, error) {
	return call(ctx, c, CallProblems, None{})
}

// Objects returns active objects. An empty namespace or name means all.
func (c *Client) Objects(ctx context.Context, kind, namespace, name string) ([]Object, error) {
	return call(ctx, c, CallObjects, ObjectQuery{kind, namespace, name})
}

// Dump returns the resources of a proxy. An empty type means all.
func (c *Client) Dump(ctx context.Context, proxy, typ string) (Dump, error) {
	return call(ctx, c, CallDump, DumpRequest{proxy, typ})
}

// Explain returns what the policies say of a request.
func (c *Client) Explain(ctx context.Context, r ExplainRequest) (Explanation, error) {
	return call(ctx, c, CallExplain, r)
}

// Services sends services to emit, one by one. With q.Watch it continues with changes until ctx
// ends, which is no error then.
func (c *Client) Services(ctx context.Context, q ServiceQuery, emit func(ServiceEvent) error) error {
	return receive(ctx, c, StreamServices, q, "services were watched", emit)
}

// TailAudit sends the latest n events of the audit log to emit. With follow it continues with new
// ones until ctx ends, which is no error then.
func (c *Client) TailAudit(ctx context.Context, n int, follow bool, emit func(audit.Event) error) error {
	return receive(ctx, c, StreamAudit, TailRequest{n, follow}, "the audit log was followed", emit)
}

// AcceptRemovals removes what is retained of a source.
func (c *Client) AcceptRemovals(ctx context.Context, source string) (Accepted, error) {
	return call(ctx, c, CallAcceptRemovals, AcceptRequest{source})
}

// ReleaseVIPs releases the virtual IPs of hosts that no replica has used for a week.
func (c *Client) ReleaseVIPs(ctx context.Context) (ReleasedVIPs, error) {
	return call(ctx, c, CallReleaseVIPs, None{})
}

// Stored returns objects of the store. An empty kind, namespace or name means all.
func (c *Client) Stored(ctx context.Context, kind, namespace, name string) ([]Object, error) {
	return call(ctx, c, CallStored, ObjectQuery{kind, namespace, name})
}

// History returns past writes to the store.
func (c *Client) History(ctx context.Context, r HistoryRequest) (StoreHistory, error) {
	if r.Differences {
		return call(ctx, c, CallDifferences, r)
	}
	return call(ctx, c, CallHistory, r)
}

// Apply writes the objects of files to the store, all or none.
func (c *Client) Apply(ctx context.Context, files []Piece, o StoreOptions) (Written, error) {
	return c.write(ctx, StoreWrite{Action: Apply, Pieces: files, StoreOptions: o})
}

// Delete deletes the objects that pieces name from the store, all or none.
func (c *Client) Delete(ctx context.Context, pieces []Piece, o StoreOptions) (Written, error) {
	return c.write(ctx, StoreWrite{Action: Delete, Pieces: pieces, StoreOptions: o})
}

// Rollback restores what the store had at a revision.
func (c *Client) Rollback(ctx context.Context, r RollbackRequest, o StoreOptions) (Written, error) {
	return c.write(ctx, StoreWrite{Action: Rollback, RollbackRequest: r, StoreOptions: o})
}

func (c *Client) write(ctx context.Context, w StoreWrite) (Written, error) {
	if w.Preview {
		return call(ctx, c, CallPreview, w)
	}
	return call(ctx, c, CallWrite, w)
}

// CreateToken creates a join token.
func (c *Client) CreateToken(ctx context.Context, r TokenRequest) (Token, error) {
	return call(ctx, c, CallCreateToken, r)
}

// ListTokens returns the join tokens.
func (c *Client) ListTokens(ctx context.Context) ([]TokenStatus, error) {
	return call(ctx, c, CallTokens, None{})
}

// RevokeToken revokes a join token. A workload that joined with it stays.
func (c *Client) RevokeToken(ctx context.Context, id string) error {
	_, err := call(ctx, c, CallRevokeToken, TokenID{id})
	return err
}

// Authority returns the state of the certificate authority.
func (c *Client) Authority(ctx context.Context) (Authority, error) {
	return call(ctx, c, CallAuthority, None{})
}

// RotateAuthority begins a rotation of the root, or forces its next step.
func (c *Client) RotateAuthority(ctx context.Context, r RotateRequest) (Authority, error) {
	return call(ctx, c, CallRotate, r)
}

// CreateReplicaToken creates a token for one more control plane.
func (c *Client) CreateReplicaToken(ctx context.Context, r ReplicaTokenRequest) (ReplicaToken, error) {
	return call(ctx, c, CallCreateReplicaToken, r)
}

// Workloads returns all workloads and revocations.
func (c *Client) Workloads(ctx context.Context) (WorkloadList, error) {
	return call(ctx, c, CallWorkloads, None{})
}

// Revoke revokes an identity, a workload or a certificate.
func (c *Client) Revoke(ctx context.Context, r RevokeRequest) (Revoked, error) {
	return call(ctx, c, CallRevoke, r)
}

// Restore undoes Revoke.
func (c *Client) Restore(ctx context.Context, r RevokeRequest) (Revoked, error) {
	return call(ctx, c, CallRestore, r)
}

// call sends a call and returns its response.
func call[Q, A any](ctx context.Context, c *Client, name Call[Q, A], q Q) (A, error) {
	var out A
	if c.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, c.timeout, ErrSilent)
		defer cancel()
	}
	body, err := c.send(ctx, string(name), q)
	if err != nil {
		return out, err
	}
	text, err := io.ReadAll(body)
	if err = errors.Join(err, body.Close()); err != nil {
		return out, c.explain(ctx, err)
	}
	return out, c.decode(text, &out)
}

// receive sends the call of a stream and hands emit its items. A stream that follows has no
// timeout; the end of ctx is no error then, and that of the stream is one. what names what was
// followed.
func receive[Q follower, T any](ctx context.Context, c *Client, name Stream[Q, T], q Q, what string,
	emit func(T) error) error {
	if c.timeout > 0 && !q.Follows() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, c.timeout, ErrSilent)
		defer cancel()
	}
	body, err := c.send(ctx, string(name), q)
	if err == nil {
		defer func() { _ = body.Close() }() // it was only read
		lines := json.NewDecoder(body)
		for {
			var l line[T]
			if err = lines.Decode(&l); err != nil {
				break
			}
			if l.Refusal != nil {
				return l.Refusal.received()
			}
			if err := emit(*l.Item); err != nil {
				return err
			}
		}
	}
	switch {
	case q.Follows() && ctx.Err() != nil:
		return nil
	case !errors.Is(err, io.EOF):
		return c.explain(ctx, err)
	case q.Follows():
		return NewError(ErrEnded, "ashored ended while %s at %s", what, c.socket)
	}
	return nil
}

// send sends a request and returns the body of its response.
func (c *Client) send(ctx context.Context, name string, q any) (io.ReadCloser, error) {
	b, err := json.Marshal(q)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", name, err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://ashored"+apiPath+name, bytes.NewReader(b))
	if err != nil {
		return nil, fmt.Errorf("call %s: %w", name, err)
	}
	req.Header.Set("Expect", "100-continue") // a server that refuses the user reads no files
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.explain(ctx, err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp.Body, nil
	}
	text, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return nil, c.explain(ctx, err)
	}
	var r Refusal
	if err := c.decode(text, &r); err != nil {
		return nil, err
	}
	return nil, r.received()
}

func (c *Client) decode(text []byte, into any) error {
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("understand the answer of ashored at %s (is it of another version?): %w", c.socket, err)
	}
	return nil
}

// explain returns why there is no response, and what to do. Refusals are returned as they are.
func (c *Client) explain(ctx context.Context, err error) error {
	op, ok := errors.AsType[*net.OpError](err)
	dialing := ok && op.Op == "dial"
	_, refused := errors.AsType[*Refusal](err)
	switch {
	case refused:
		return err
	case errors.Is(context.Cause(ctx), ErrSilent):
		return NewError(ErrSilent, "ashored did not answer at %s within %s: it was stopped, or has too much to do; "+
			"its log and \"ps\" say more, and --timeout waits longer", c.socket, c.timeout)
	case errors.Is(err, fs.ErrNotExist):
		return NewError(ErrNotRunning, "ashored is not running: there is no admin socket %s. "+
			"Start ashored, or name the socket of the running one with --socket", c.socket)
	case errors.Is(err, syscall.ECONNREFUSED):
		return NewError(ErrNotRunning, "ashored is not running: nobody listens at its admin socket %s any more. "+
			"Start it again, or name another socket with --socket", c.socket)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("the admin socket %s is closed to this user: root, the user that ashored runs as and the "+
			"users of its setting admin.roles may use it; run this as one of them (sudo): %w", c.socket, err)
	case dialing, ctx.Err() != nil:
		return fmt.Errorf("ask ashored at %s: %w", c.socket, err)
	}
	return NewError(ErrEnded, "ashored ended while it was asked at %s: its log says why (%v)", c.socket, err)
}
