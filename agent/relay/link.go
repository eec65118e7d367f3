package relay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
)

const (
	// firstBackoff and lastBackoff bound the back-off once all addresses failed.
	firstBackoff, lastBackoff = 500 * time.Millisecond, 30 * time.Second
	// steadyLink is how long a connection has to last to reset the back-off.
	steadyLink = 10 * time.Second
	// answerTimeout is the maximum time for the first answer of a control plane.
	answerTimeout = time.Minute
	// A control plane that hangs, or whose network is down, is noticed within pingTime +
	// pingTimeout. gRPC pings at most every 10 s.
	pingTime, pingTimeout = 10 * time.Second, 5 * time.Second
	// maxResponse is the maximum size of one response of the control plane, in bytes.
	maxResponse = 1 << 30
)

// link is a verified connection to one control plane. It ends with the first stream that fails.
type link struct {
	address string           // immutable
	conn    *grpc.ClientConn // immutable

	ctx  context.Context         // ends with the link; its cause says why
	fail context.CancelCauseFunc // ends the link
	used time.Time               // when the control plane answered; zero: not yet
}

// connectLoop keeps a link to one of the control planes. When it fails, it tries the next address,
// with a back-off once all failed.
func (r *Relay) connectLoop(ctx context.Context) error {
	addresses, failures := r.cfg.Addresses, 0
	logged := map[string]string{} // the last error by address
	for next := rand.IntN(len(addresses)); ; {
		address := addresses[next]
		used, err := r.connect(ctx, address)
		r.use(nil, err)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, errRenewed):
			r.log.Debug("the certificate was renewed: connecting again")
			continue
		}
		next = (next + 1) % len(addresses)
		if !used.IsZero() {
			clear(logged)
			if time.Since(used) >= steadyLink {
				failures = 0
			}
		}
		if r.cfg.Refused != nil && status.Code(err) == codes.Unauthenticated {
			r.cfg.Refused()
		}
		if logged[address] != err.Error() {
			r.log.Warn("no connection to the control plane", "address", address, "error", err)
		}
		logged[address] = err.Error()
		failures++
		select {
		case <-ctx.Done():
		case <-r.cfg.Renewed:
		case <-time.After(backoff(failures, len(addresses))):
		}
	}
}

// errRenewed ends a link whose certificate was renewed.
var errRenewed = errors.New("the certificate was renewed")

// connect opens a link and runs its control stream until it ends. used is when the control plane
// answered; zero: it did not. Errors name the address.
func (r *Relay) connect(ctx context.Context, address string) (used time.Time, err error) {
	raw, err := r.cfg.Dial(ctx, address)
	if err != nil {
		return used, err
	}
	conn, err := NewClient(address, raw,
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxResponse)),
		grpc.WithInitialWindowSize(512<<10), grpc.WithInitialConnWindowSize(1<<20),
		grpc.WithIdleTimeout(0),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingTime, Timeout: pingTimeout}))
	if err != nil {
		return used, err
	}
	l := &link{address: address, conn: conn}
	l.ctx, l.fail = context.WithCancelCause(ctx)
	err = r.control(l)
	l.fail(err)
	_ = conn.Close() // fails only when it is closed already
	return l.used, StreamError(address, err)
}

// NewClient returns a gRPC client over one verified connection, which it owns, also after an error.
// It does not reconnect.
func NewClient(address string, raw net.Conn, options ...grpc.DialOption) (*grpc.ClientConn, error) {
	once := make(chan net.Conn, 1)
	once <- raw
	conn, err := grpc.NewClient("passthrough:///"+address, append(options,
		grpc.WithTransportCredentials(insecure.NewCredentials()), // raw is encrypted already
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			select {
			case c := <-once:
				return c, nil
			default:
				return nil, errors.New("the connection has ended")
			}
		}))...)
	if err != nil {
		return nil, errors.Join(err, raw.Close())
	}
	return conn, nil
}

// use makes l the link in use. Nil: there is none, because of err.
func (r *Relay) use(l *link, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	confirmed := r.lastConfirmed()
	if (l == nil) != (r.link == nil) || l != nil && l.address != r.link.address {
		r.since = time.Now()
	}
	if err != nil {
		r.lastErr = err.Error()
	}
	r.link, r.confirmed = l, confirmed
	if l != nil {
		r.log.Info("connected to the control plane", "address", l.address)
	}
	r.broadcast()
}

// backoff returns the wait after a number of failures in a row. It doubles each time that all
// addresses failed, and is random, so that agents do not reconnect all at once.
func backoff(failures, addresses int) time.Duration {
	bound := firstBackoff
	for range (failures - 1) / addresses {
		bound = min(2*bound, lastBackoff)
	}
	return bound/4 + rand.N(bound*3/4)
}

// StreamError explains why a stream ended, and what to do. status.Code can read its code.
func StreamError(address string, err error) error {
	s, ok := status.FromError(err)
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("control plane %s ended the stream", address)
	}
	if !ok {
		return fmt.Errorf("control plane %s: %w", address, err)
	}
	todo := ""
	switch s.Code() {
	case codes.Unauthenticated:
		todo = "; see \"ashore-agent status\" for the state of its certificate, or join again"
	case codes.FailedPrecondition, codes.InvalidArgument:
		todo = "; correct this in the agent's settings or in the mesh's configuration"
	case codes.ResourceExhausted:
		todo = "; see whether another program uses a copy of this workload's identity"
	case codes.Unimplemented:
		todo = "; this is not a control plane's xDS port"
	case codes.Unavailable:
		if strings.Contains(s.Message(), "server preface") {
			todo = "; it does not speak gRPC: give the port for TLS (15012), or with --dev the plaintext one (15010)"
		}
	}
	return &refusedError{fmt.Sprintf("control plane %s: %s: %s%s", address, s.Code(), s.Message(), todo), s}
}

// refusedError is an error of gRPC with a remedy.
type refusedError struct {
	text   string
	status *status.Status
}

func (e *refusedError) Error() string              { return e.text }
func (e *refusedError) GRPCStatus() *status.Status { return e.status }

// upstream is one stream to the control plane.
type upstream struct {
	link   *link                                                                 // immutable
	stream discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient // immutable
	cancel context.CancelFunc

	responses <-chan *response // closed when the stream has ended
	err       *error           // readable once responses is closed
}

// open opens a stream. It ends with the link.
func (l *link) open() (*upstream, error) {
	ctx, cancel := context.WithCancel(l.ctx)
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(l.conn).DeltaAggregatedResources(ctx)
	if err != nil {
		cancel()
		return nil, err
	}
	u := &upstream{link: l, stream: stream, cancel: cancel}
	u.responses, u.err = receive(stream.Recv, ctx.Done())
	return u, nil
}

// close ends the stream and waits until receive has returned. u may be nil.
func (u *upstream) close() {
	if u == nil {
		return
	}
	u.cancel()
	for range u.responses { // until it is closed
	}
}

// send sends a request. An error ends the link.
func (u *upstream) send(r *request) {
	if err := u.stream.Send(r); err != nil && !errors.Is(err, io.EOF) {
		u.link.fail(err)
	} // after io.EOF receive returns the reason
}
