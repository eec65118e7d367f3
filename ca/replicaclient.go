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
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	securityv1 "istio.io/api/security/v1alpha1"

	"github.com/ashore-mesh/ashore/internal/readfile"
)

// replicaCallTimeout bounds a call to another replica.
const replicaCallTimeout = 5 * time.Second

// fetch requests an intermediate below a root. A replica that has a trusted one proves itself by
// it, others by the token.
func (s *selfSigned) fetch(ctx context.Context, root *x509.Certificate, now time.Time) (*pair, error) {
	c, addresses, err := s.replicaCall(root, now)
	if err != nil {
		return nil, err
	}
	key := NewKey()
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSigner, err)
	}
	c.csr = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
	errs := []error{errors.New("no other replica gives this one an intermediate")}
	for _, address := range addresses {
		cert, err := c.do(ctx, address)
		p := &pair{key: key, cert: cert}
		switch {
		case err != nil:
		case !cert.IsCA || !sameKey(cert.PublicKey, key.Public()):
			err = errors.New("it answered with another certificate")
		case !p.under(root, now):
			err = fmt.Errorf("its intermediate is valid from %s to %s, and this machine's clock says %s: set the "+
				"clock that is wrong",
				cert.NotBefore.Format(time.RFC3339), cert.NotAfter.Format(time.RFC3339), now.UTC().Format(time.RFC3339))
		default:
			return p, nil
		}
		errs = append(errs, fmt.Errorf("replica %s: %w", address, err))
	}
	return nil, errors.Join(errs...)
}

// replicaCall prepares the call for an intermediate, and returns the addresses to call.
func (s *selfSigned) replicaCall(root *x509.Certificate, now time.Time) (c replicaCall, addresses []string, err error) {
	if s.above(now) != nil {
		v := s.view.Load()
		if v == nil {
			return c, nil, errors.New("this replica has just started, and asks again when it signs")
		}
		c.tls = controlPlaneTLS(s.bundle, s.config.TrustDomain, now)
		c.tls.Certificates = []tls.Certificate{*v.server}
		for _, r := range s.config.Replicas() {
			addresses = append(addresses, r.Address)
		}
		return c, addresses, nil
	}
	var named, address string
	c.token, named, address, err = s.replicaToken()
	if id := RootID(root); err == nil && named != id {
		err = fmt.Errorf("the store says that root %s signs, and the token names root %s: it is of another mesh, or "+
			"older than a rotation", id, named)
	}
	if err != nil {
		return c, nil, fmt.Errorf("this mesh has a root, whose key is with another replica, and this one has no valid "+
			"token: put what \"ashorectl ca replica-token\" prints there into %s, mode 0600, or restore %s from a "+
			"backup: %w",
			s.dir.at(replicaTokenFile), rootFile, err)
	}
	c.tls = controlPlaneTLS(NewBundle(root), s.config.TrustDomain, now)
	return c, []string{address}, nil
}

// replicaToken reads the file of the replica token.
func (s *selfSigned) replicaToken() (text, root, address string, err error) {
	path := s.dir.at(replicaTokenFile)
	data, info, err := readfile.Read(path, 4<<10)
	if err == nil {
		err = checkKeyMode(path, info.Mode())
	}
	if err == nil {
		text = strings.TrimSpace(string(data))
		root, address, err = parseReplicaToken(text)
	}
	return text, root, address, err
}

// replicaCall is a call for an intermediate.
type replicaCall struct {
	tls   *tls.Config
	token string // empty: the certificate in tls proves who calls
	csr   string
}

// do calls a replica.
func (c *replicaCall) do(ctx context.Context, address string) (*x509.Certificate, error) {
	ctx, cancel := context.WithTimeout(ctx, replicaCallTimeout)
	defer cancel()
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(credentials.NewTLS(c.tls)))
	if err != nil {
		return nil, err
	}
	defer conn.Close() //nolint:errcheck // nothing more is sent
	if c.token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+c.token)
	}
	out := &securityv1.IstioCertificateResponse{}
	err = conn.Invoke(ctx, "/"+replicaService+"/"+replicaMethod, &securityv1.IstioCertificateRequest{Csr: c.csr}, out)
	if err != nil {
		return nil, errors.New(cmp.Or(status.Convert(err).Message(), err.Error()))
	}
	certs, err := DecodeCertificates([]byte(strings.Join(out.GetCertChain(), "")))
	if err != nil {
		return nil, err
	}
	return certs[0], nil
}
