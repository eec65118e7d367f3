package agent

import (
	"context"
	"crypto"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"
	securityv1 "istio.io/api/security/v1alpha1"
)

const (
	// dialTimeout bounds the connection and the handshake with a control plane.
	dialTimeout = 10 * time.Second
	// askTimeout bounds one request for a certificate.
	askTimeout = 15 * time.Second
)

// dial opens a connection to a control plane and verifies it. Errors name the address, what is wrong and what to do;
// a server that is not believed gives a ServerError.
func dial(ctx context.Context, address string, cfg *tls.Config) (*tls.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	cfg = cfg.Clone()
	cfg.NextProtos = []string{"h2"}
	if cfg.ServerName, _, _ = net.SplitHostPort(address); net.ParseIP(cfg.ServerName) != nil {
		cfg.ServerName = "" // RFC 6066: an address is not a server name
	}
	targets, err := targetsOf(ctx, address)
	if err != nil {
		return nil, dialError(address, err)
	}
	conn, err := dialOne(ctx, targets, cfg)
	if err != nil {
		return nil, dialError(address, err)
	}
	return conn, nil
}

// targetsOf are the addresses that a name stands for, in another order each time: behind each may be a replica of its own, and
// one that is stuck must not be all that is ever tried.
func targetsOf(ctx context.Context, address string) ([]string, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil || net.ParseIP(host) != nil {
		return []string{address}, err
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, err
	}
	rand.Shuffle(len(ips), func(i, j int) { ips[i], ips[j] = ips[j], ips[i] })
	var out []string
	for _, ip := range ips {
		out = append(out, net.JoinHostPort(ip.Unmap().String(), port))
	}
	return out, nil
}

// dialOne tries one target after another, each for its part of the time that is left, until one is what it should be.
func dialOne(ctx context.Context, targets []string, cfg *tls.Config) (*tls.Conn, error) {
	var errs []error
	for i, target := range targets {
		part := dialTimeout
		if end, ok := ctx.Deadline(); ok {
			part = time.Until(end) / time.Duration(len(targets)-i)
		}
		conn, err := dialTLS(ctx, target, cfg, part)
		if err == nil {
			return conn, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

func dialTLS(ctx context.Context, target string, cfg *tls.Config, wait time.Duration) (*tls.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	var d net.Dialer
	raw, err := d.DialContext(ctx, "tcp", target)
	if err != nil {
		return nil, err
	}
	conn := tls.Client(raw, cfg)
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = raw.Close() // the handshake's error is the one that counts
		return nil, err
	}
	return conn, nil
}

// dialError says why a control plane is not reached.
func dialError(address string, err error) error {
	var text string
	var untrusted *ServerError
	var dns *net.DNSError
	var timeout net.Error
	var record tls.RecordHeaderError
	switch {
	case errors.As(err, &untrusted):
		return fmt.Errorf("control plane %s is not believed: %w", address, err)
	case errors.As(err, &dns) && dns.IsNotFound:
		text = "the name " + dns.Name + " does not resolve: check its spelling and this machine's DNS (/etc/resolv.conf), or give the address"
	case errors.As(err, &dns):
		text = "the name " + dns.Name + " cannot be looked up: this machine's DNS does not answer (/etc/resolv.conf)"
	case errors.Is(err, syscall.ECONNREFUSED):
		text = "nothing listens there: see whether ashored runs on that machine and serves TLS on this port (15012), and that the address is right"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		text = "there is no way to it: check this machine's network and routes"
	case errors.As(err, &record):
		text = "it does not speak TLS: this may be the plaintext port (15010); give the one for TLS (15012)"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		text = fmt.Sprintf("no answer within %s: a firewall may be in the way, or the machine is away", dialTimeout)
	case errors.Is(err, syscall.ECONNRESET):
		text = "it ended the connection: see the log of ashored there"
	default:
		return fmt.Errorf("control plane %s: %w", address, err)
	}
	return fmt.Errorf("control plane %s: %s (%w)", address, text, err)
}

// RefusedError is that a control plane does not give a certificate, whoever of them is asked.
type RefusedError struct {
	// Address is who refused.
	Address string
	Code    codes.Code
	// Text is why, in its words.
	Text string
	// Todo is what helps.
	Todo string
}

func (e *RefusedError) Error() string {
	text := fmt.Sprintf("control plane %s refuses: %s", e.Address, e.Text)
	if e.Todo != "" {
		text += "; " + e.Todo
	}
	return text
}

// asking is one request for a certificate.
type asking struct {
	key   crypto.Signer
	token string // of a join; empty: the connection's certificate proves who asks
	name  string // of the workload
	group string // that a join is for, "namespace/name"; empty: not a join
}

// authority asks control planes for certificates.
type authority struct {
	addresses []string
	// config makes the TLS client's settings for each connection.
	config func() *tls.Config

	last atomic.Pointer[string] // the address that answered last
}

// ask returns the identity that a control plane gave, what was parsed and nothing else checked. The addresses are tried
// one after another, the one that answered last first; a refusal ends that. local is this machine's address on the
// connection. Errors: RefusedError, or all that was in the way.
func (a *authority) ask(ctx context.Context, q asking) (id *Identity, local net.Addr, err error) {
	var errs []error
	for _, address := range a.order() {
		id, local, err = a.askOne(ctx, address, q)
		if err == nil {
			a.last.Store(&address)
			return id, local, nil
		}
		errs = append(errs, err)
		var refused *RefusedError
		if errors.As(err, &refused) || ctx.Err() != nil {
			break
		}
	}
	return nil, nil, errors.Join(errs...)
}

// order is in which order the control planes are asked.
func (a *authority) order() []string {
	last := a.last.Load()
	if last == nil {
		return a.addresses
	}
	out := []string{*last}
	for _, address := range a.addresses {
		if address != *last {
			out = append(out, address)
		}
	}
	return out
}

func (a *authority) askOne(ctx context.Context, address string, q asking) (*Identity, net.Addr, error) {
	conn, err := dial(ctx, address, a.config())
	if err != nil {
		return nil, nil, err
	}
	answer, err := createCertificate(ctx, conn, q)
	if err != nil {
		return nil, nil, refusal(address, err)
	}
	id, err := parseAnswer(q.key, answer.GetCertChain())
	if err != nil {
		return nil, nil, fmt.Errorf("control plane %s answered with what cannot be used: %w", address, err)
	}
	return id, conn.LocalAddr(), nil
}

// createCertificate sends one request over a connection, which it closes.
func createCertificate(ctx context.Context, conn *tls.Conn, q asking) (answer *securityv1.IstioCertificateResponse, err error) {
	csr, err := newRequest(q.key)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	once := make(chan net.Conn, 1)
	once <- conn
	client, err := grpc.NewClient("passthrough:///control-plane",
		grpc.WithTransportCredentials(insecure.NewCredentials()), // what it gets is a TLS connection that was verified
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			select {
			case c := <-once:
				return c, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			default:
				return nil, errors.New("the connection has ended")
			}
		}), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxIdentityFile)))
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	r := &securityv1.IstioCertificateRequest{Csr: string(csr)}
	r.Metadata = q.metadata()
	if q.token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+q.token)
	}
	return securityv1.NewIstioCertificateServiceClient(client).CreateCertificate(ctx, r)
}

// metadata says what is asked for in words: which workload the certificate is for and, at a join, which group.
func (q asking) metadata() *structpb.Struct {
	fields := map[string]*structpb.Value{}
	for name, value := range map[string]string{"Workload": q.name, "Group": q.group} {
		if value != "" {
			fields[name] = structpb.NewStringValue(value)
		}
	}
	return &structpb.Struct{Fields: fields}
}

// refusal sorts a control plane's answer: a RefusedError when asking another one is of no use.
func refusal(address string, err error) error {
	s := statusOf(err)
	if s == nil {
		return fmt.Errorf("control plane %s: %w", address, err)
	}
	r := &RefusedError{Address: address, Code: s.Code(), Text: strings.TrimSpace(s.Message())}
	switch s.Code() {
	case codes.PermissionDenied:
	case codes.Unauthenticated:
		r.Todo = "a new line is made by \"ashorectl join-token create\""
	case codes.FailedPrecondition, codes.NotFound:
		r.Todo = "make sure that the WorkloadGroup exists (ashorectl get workloadgroup)"
	case codes.InvalidArgument:
		r.Todo = "agent and control plane may be of different releases"
	case codes.Unimplemented:
		r.Text, r.Todo = "it gives no certificates", "see whether its authority is switched on, and that the port is the one for TLS (15012)"
	default:
		return fmt.Errorf("control plane %s does not answer as it should: %w", address, err)
	}
	return r
}

// statusOf is the gRPC status that an error holds; nil: none. Unlike status.FromError it leaves what is around it out.
func statusOf(err error) *status.Status {
	var s interface{ GRPCStatus() *status.Status }
	if !errors.As(err, &s) {
		return nil
	}
	return s.GRPCStatus()
}
