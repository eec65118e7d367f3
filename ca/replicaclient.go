package ca

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	securityv1 "istio.io/api/security/v1alpha1"

	"github.com/ashore-mesh/ashore/internal/readfile"
)

const (
	// replicaMethod is the call for an intermediate. Its messages are Istio's.
	replicaMethod = "CreateIntermediate"
	// replicaCallTimeout bounds a call to another replica.
	replicaCallTimeout = 5 * time.Second
)

// ErrReplica is why a replica gets no intermediate from another one.
var ErrReplica = errors.New("this replica gets no intermediate")

// replicaClient requests intermediates from the replica that has the root's key.
type replicaClient struct {
	tokenFile string           // may be empty
	others    func() []Replica // those that are alive
	// server is the control plane's certificate; nil until this replica signs.
	server func() *tls.Certificate
}

// fetch requests an intermediate below a root. A replica that has a trusted one proves itself by
// it, others by the token. Errors: ErrReplica.
func (s *selfSigned) fetch(ctx context.Context, root *x509.Certificate, now time.Time) (*pair, error) {
	config, token, addresses, err := s.replicaProof(root, now)
	if err == nil && len(addresses) == 0 {
		err = errors.New("no other replica is alive: start the one that has the root's key")
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrReplica, err)
	}
	key := NewKey()
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSigner, err)
	}
	csr := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
	var errs []error
	for _, address := range addresses {
		cert, err := callReplica(ctx, address, config, token, csr)
		p := &pair{key: key, cert: cert}
		switch {
		case err != nil:
		case !cert.IsCA || !sameKey(cert.PublicKey, key.Public()):
			err = errors.New("it answered with another certificate")
		case !p.under(root, now):
			err = fmt.Errorf("its intermediate is valid from %s to %s, and this machine's clock says %s: set the clock "+
				"that is wrong",
				cert.NotBefore.Format(time.RFC3339), cert.NotAfter.Format(time.RFC3339), now.UTC().Format(time.RFC3339))
		default:
			return p, s.keep(p, root)
		}
		errs = append(errs, fmt.Errorf("replica %s: %w", address, err))
	}
	return nil, fmt.Errorf("%w: %w", ErrReplica, errors.Join(errs...))
}

// replicaProof is how this replica proves itself to others and whom it accepts, and the addresses
// to call.
func (s *selfSigned) replicaProof(root *x509.Certificate, now time.Time) (*tls.Config, string, []string, error) {
	clock := func() time.Time { return now }
	if s.above(now) != nil {
		cert := s.replicas.server()
		if cert == nil {
			return nil, "", nil, errors.New("this replica has just started, and asks again when it signs")
		}
		bundle := s.bundle
		config := controlPlaneTLS(func() *Bundle { return bundle }, s.trustDomain, clock)
		config.Certificates = []tls.Certificate{*cert}
		var addresses []string
		for _, r := range s.replicas.others() {
			addresses = append(addresses, r.Address)
		}
		return config, "", addresses, nil
	}
	text, t, err := s.replicas.token(s.dir.at(rootFile))
	if err != nil {
		return nil, "", nil, err
	}
	if id := RootID(root); t.Root != id {
		return nil, "", nil, s.replicas.tokenError(fmt.Errorf("the store says that root %s signs, and the token names "+
			"root %s: it is of another mesh, or older than a rotation; make a new one (\"ashorectl ca replica-token\")",
			id, t.Root))
	}
	pinned := NewBundle(root)
	return controlPlaneTLS(func() *Bundle { return pinned }, s.trustDomain, clock), text, []string{t.Address}, nil
}

// above is the trusted root that this replica's intermediate is below; nil: there is none.
func (s *selfSigned) above(now time.Time) *x509.Certificate {
	if s.inter == nil {
		return nil
	}
	for _, id := range s.state.trusted() {
		if root, err := s.state.root(id); err == nil && s.inter.under(root, now) {
			return root
		}
	}
	return nil
}

// token reads the file of the replica token.
func (c *replicaClient) token(rootKey string) (text string, t replicaToken, err error) {
	if c.tokenFile == "" {
		return "", t, fmt.Errorf("setting ca.replicaToken: this mesh has a root, whose key is with another replica, and "+
			"nothing proves that this one belongs to it: run \"ashorectl ca replica-token\" there, put what it prints "+
			"into a file here, readable by ashored alone, and name the file in the setting (or restore %s from a backup)",
			rootKey)
	}
	data, info, err := readfile.Read(c.tokenFile, 4<<10)
	if err == nil {
		err = checkKeyMode(c.tokenFile, info.Mode())
	}
	if err == nil {
		t, _, _, err = decodeReplicaToken(string(data))
	}
	if err != nil {
		return "", t, c.tokenError(fmt.Errorf("%w: put what \"ashorectl ca replica-token\" prints into it", err))
	}
	return strings.TrimSpace(string(data)), t, nil
}

// tokenError names the setting and the file.
func (c *replicaClient) tokenError(err error) error {
	return fmt.Errorf("setting ca.replicaToken, file %s: %w", c.tokenFile, err)
}

// callReplica requests an intermediate from a replica.
func callReplica(ctx context.Context, address string, config *tls.Config, token string, csr []byte) (*x509.Certificate,
	error) {
	ctx, cancel := context.WithTimeout(ctx, replicaCallTimeout)
	defer cancel()
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(credentials.NewTLS(config)))
	if err != nil {
		return nil, err
	}
	defer conn.Close() //nolint:errcheck // nothing more is sent
	if token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
	}
	out := &securityv1.IstioCertificateResponse{}
	if err := conn.Invoke(ctx, "/"+replicaService+"/"+replicaMethod, &securityv1.IstioCertificateRequest{Csr: string(csr)},
		out); err != nil {
		return nil, errors.New(cmp.Or(status.Convert(err).Message(), err.Error()))
	}
	if len(out.GetCertChain()) != 1 {
		return nil, status.Error(codes.Internal, "it answered with no certificate")
	}
	certs, err := DecodeCertificates([]byte(out.GetCertChain()[0]))
	if err != nil {
		return nil, err
	}
	return certs[0], nil
}
