package agent

import (
	"context"
	"crypto"
	"crypto/tls"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"
	securityv1 "istio.io/api/security/v1alpha1"

	"github.com/ashore-mesh/ashore/agent/relay"
	"github.com/ashore-mesh/ashore/ca"
)

// askTimeout bounds one request for a certificate.
const askTimeout = 15 * time.Second

// RefusedError means that a control plane refuses a certificate. The others would refuse it too.
type RefusedError struct {
	// Address is that of the control plane.
	Address string
	// Text is its reason.
	Text string
	// Todo says what to do; it may be empty.
	Todo string
}

func (e *RefusedError) Error() string {
	text := fmt.Sprintf("control plane %s refuses: %s", e.Address, e.Text)
	if e.Todo != "" {
		text += "; " + e.Todo
	}
	return text
}

// certificateRequest is one request for a certificate.
type certificateRequest struct {
	key   crypto.Signer
	token string // that authenticates the request; empty: the connection's certificate does
	name  string // of the workload; empty: the authority names it
	group string // that a join is for, "namespace/name"; empty: not a join
}

// authority requests certificates from control planes.
type authority struct {
	addresses []string
	// own is the workload's address; zero: unknown.
	own netip.Addr
	// config returns the TLS settings for one connection.
	config func() *tls.Config
	// tokenFile and cluster are the settings xds.tokenFile and workload.cluster.
	tokenFile, cluster string
}

// ask requests a certificate. It tries the addresses one after another, until one gives a
// certificate or refuses. The identity is parsed and not verified. Errors: RefusedError, or what
// failed at each address.
func (a *authority) ask(ctx context.Context, q certificateRequest) (*Identity, error) {
	if a.tokenFile != "" {
		var err error
		if q.token, err = readAccountToken(a.tokenFile); err != nil {
			return nil, fmt.Errorf("xds.tokenFile: %w", err)
		}
		q.name = "" // the authority names such workloads by their first key
	}
	var errs []error
	for _, address := range a.addresses {
		id, err := a.askOne(ctx, address, q)
		if err == nil {
			return id, nil
		}
		errs = append(errs, err)
		var refused *RefusedError
		if errors.As(err, &refused) || ctx.Err() != nil {
			break
		}
	}
	return nil, errors.Join(errs...)
}

func (a *authority) askOne(ctx context.Context, address string, q certificateRequest) (*Identity, error) {
	conn, err := dial(ctx, address, a.own, a.config())
	if err != nil {
		return nil, err
	}
	answer, err := a.createCertificate(ctx, conn, q)
	if err != nil {
		return nil, a.refusal(address, err)
	}
	id, err := parseAnswer(q.key, answer.GetCertChain())
	if err != nil {
		return nil, fmt.Errorf("control plane %s answered with what cannot be used: %w", address, err)
	}
	return id, nil
}

// createCertificate sends one request over a connection, and closes it.
func (a *authority) createCertificate(ctx context.Context, conn *tls.Conn,
	q certificateRequest) (answer *securityv1.IstioCertificateResponse, err error) {
	client, err := relay.NewClient("control-plane", conn,
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxIdentityFile)))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if q.token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+q.token)
	}
	if a.cluster != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, clusterHeader, a.cluster)
	}
	send := func(identity string) (*securityv1.IstioCertificateResponse, error) {
		csr, err := newRequest(q.key, identity)
		if err != nil {
			return nil, err
		}
		r := &securityv1.IstioCertificateRequest{Csr: string(csr), Metadata: q.metadata()}
		return securityv1.NewIstioCertificateServiceClient(client).CreateCertificate(ctx, r)
	}
	if answer, err = send(""); err == nil {
		return answer, nil
	}
	if identity := neededIdentity(err); identity != "" {
		return send(identity)
	}
	return nil, err
}

// neededIdentity is the SPIFFE ID that the request for a certificate has to have, because a signer
// outside of the control plane signs it. Empty: that is not why it was refused.
func neededIdentity(err error) string {
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok && info.GetReason() == ca.NeedsIdentity {
			return info.GetMetadata()[ca.IdentityKey]
		}
	}
	return ""
}

// clusterHeader says which cluster the token of a service account is from. Source: Istio's agent.
const clusterHeader = "clusterid"

// readAccountToken reads the token of a service account.
func readAccountToken(path string) (string, error) {
	text, err := readSmall(path)
	token := strings.TrimSpace(string(text))
	switch {
	case err != nil:
		return "", err
	case isJoinToken(token):
		return "", fmt.Errorf("%s has a one-time token: give it by --token-file", path)
	case strings.Count(token, ".") != 2 || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return "", fmt.Errorf("%s has no token of a service account: want a JWT", path)
	}
	return token, nil
}

// metadata is the part of the request that is Ashore's own.
func (q certificateRequest) metadata() *structpb.Struct {
	fields := map[string]*structpb.Value{}
	for name, value := range map[string]string{"Workload": q.name, "Group": q.group} {
		if value != "" {
			fields[name] = structpb.NewStringValue(value)
		}
	}
	return &structpb.Struct{Fields: fields}
}

// refusal returns a RefusedError if another control plane would refuse as well.
func (a *authority) refusal(address string, err error) error {
	s := statusOf(err)
	if s == nil {
		return fmt.Errorf("control plane %s: %w", address, err)
	}
	r := &RefusedError{Address: address, Text: strings.TrimSpace(s.Message())}
	switch s.Code() {
	case codes.PermissionDenied:
	case codes.Unauthenticated:
		switch {
		case strings.Contains(r.Text, ca.ClusterSetting): // it says what to do
		case a.tokenFile != "":
			r.Todo = "the setting attestors of ashored has to name the issuer or the cluster of the token in " + a.tokenFile +
				", and the token needs an audience that it accepts, such as istio-ca; " +
				"\"ashorectl audit tail\" on the control plane says why it is refused"
		case !strings.Contains(r.Text, "ashorectl join-token create"): // it is not logged twice
			r.Todo = "a new line is made by \"ashorectl join-token create\""
		}
	case codes.FailedPrecondition, codes.NotFound:
		r.Todo = "make sure that the WorkloadGroup exists (ashorectl get workloadgroup)"
	case codes.InvalidArgument:
		r.Todo = "agent and control plane may be of different releases"
	case codes.Unimplemented:
		r.Text = "it gives no certificates"
		r.Todo = "see whether its authority is switched on, and that the port is the one for TLS (15012)"
	default:
		return fmt.Errorf("control plane %s does not answer as it should: %w", address, err)
	}
	return r
}

// statusOf returns the first gRPC status in an error; nil if there is none. Unlike status.FromError
// it leaves out the text around it.
func statusOf(err error) *status.Status {
	var s interface{ GRPCStatus() *status.Status }
	if !errors.As(err, &s) {
		return nil
	}
	return s.GRPCStatus()
}
