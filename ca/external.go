package ca

import (
	"bytes"
	"cmp"
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"

	"github.com/ashore-mesh/ashore/internal/spiffe"
)

// ExternalSigner signs certificates of workloads outside of ashored, such as a signer of Kubernetes.
type ExternalSigner interface {
	// Sign returns the chain for a certificate signing request, both PEM, the leaf first. Errors: why
	// there is none.
	Sign(ctx context.Context, request []byte, validity time.Duration) (chain []byte, err error)
}

// publicExternal is the answer to callers for which the external signer does not sign.
const publicExternal = "the signer of this mesh (ca.signer) does not sign now; try again. " +
	"\"ashorectl problems\" on the control plane says why"

// NeedsIdentity is the reason in the errdetails.ErrorInfo of an answer. Its metadata IdentityKey has
// the SPIFFE ID that the request for a certificate has to have.
const NeedsIdentity, IdentityKey = "REQUEST_NEEDS_IDENTITY", "identity"

// noNames is the reason of the answer to a request without names: agents learn their identity so.
const noNames = "no names"

// signExternally has the external signer sign the request of a workload, and checks what it signed.
// Errors: *Refusal.
func (s *Server) signExternally(ctx context.Context, id spiffe.ID, r *Request, bundle *Bundle) (*signed, error) {
	if err := r.checkNames(id); err != nil {
		return nil, err
	}
	text, err := s.config.External.Sign(ctx, r.pem(), cmp.Or(s.config.Validity, defaultValidity))
	var out *signed
	if err == nil {
		if out, err = checkExternal(text, id, r, bundle, s.config.Now()); err != nil {
			err = fmt.Errorf("the certificate of the signer is not as requested: %w", err)
		}
	}
	if ctx.Err() != nil { // the caller has gone, which says nothing about the signer
		return nil, ctx.Err()
	}
	if err != nil {
		failure := err.Error()
		s.externalFailure.Store(&failure)
		return nil, &Refusal{Code: codes.Unavailable, Public: publicExternal, Reason: noSigner, Err: err}
	}
	s.externalFailure.Store(nil)
	return out, nil
}

// Problems returns why the external signer did not sign last.
func (s *Server) Problems() []string {
	if text := s.externalFailure.Load(); text != nil {
		return []string{"no certificate is issued (setting ca.signer): " + *text}
	}
	return nil
}

// pem is the request in PEM.
func (r *Request) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: r.csr.Raw})
}

// identityNames are the alternative names of a certificate whose only name is an identity, DER.
func identityNames(id spiffe.ID) []byte {
	const uri = 6 // RFC 5280, GeneralName
	out, err := asn1.Marshal([]asn1.RawValue{{Class: asn1.ClassContextSpecific, Tag: uri, Bytes: []byte(id.String())}})
	if err != nil {
		panic(err) // every text can be encoded
	}
	return out
}

// checkNames refuses a request for anything but an identity: a signer may sign whatever is in it. An
// empty organization, as of Istio's agents, is no name. Errors: *Refusal.
func (r *Request) checkNames(id spiffe.ID) error {
	named := func(n pkix.AttributeTypeAndValue) bool { return n.Value != "" }
	subject := slices.ContainsFunc(r.csr.Subject.Names, named)
	if e := r.csr.Extensions; !subject && len(e) == 1 && isNames(e[0]) && bytes.Equal(e[0].Value, identityNames(id)) {
		return nil
	}
	reason := "bad request"
	if !subject && len(r.csr.Extensions) == 0 {
		reason = noNames
	}
	text := fmt.Sprintf("the request for a certificate has to have the URI %s, and no other name or extension", id)
	return &Refusal{Code: codes.InvalidArgument, Public: text, Reason: reason, Err: errors.New(text),
		detail: &errdetails.ErrorInfo{Domain: "ashore", Reason: NeedsIdentity,
			Metadata: map[string]string{IdentityKey: id.String()}}}
}

// isNames reports whether an extension has the alternative names of a certificate.
func isNames(e pkix.Extension) bool { return e.Id.Equal(asn1.ObjectIdentifier{2, 5, 29, 17}) }

// checkExternal reads a chain, and checks that it is for the identity and the key of a request and
// leads to a root of the bundle.
func checkExternal(text []byte, id spiffe.ID, r *Request, bundle *Bundle, now time.Time) (*signed, error) {
	chain, err := DecodeCertificates(text)
	if err != nil {
		return nil, err
	}
	leaf := chain[0]
	i := slices.IndexFunc(leaf.Extensions, isNames)
	switch {
	case i < 0 || !bytes.Equal(leaf.Extensions[i].Value, identityNames(id)):
		return nil, fmt.Errorf("its names are not just %s", id)
	case !sameKey(leaf.PublicKey, r.Key):
		return nil, errors.New("it has another key")
	case leaf.IsCA:
		return nil, errors.New("it is the certificate of an authority")
	}
	if err := bundle.verify(chain, x509.ExtKeyUsageServerAuth, now); err != nil {
		return nil, err
	}
	paths, err := leaf.Verify(x509.VerifyOptions{Roots: bundle.pool, Intermediates: pool(chain[1:]), CurrentTime: now,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	if err != nil {
		return nil, err
	}
	path := slices.MinFunc(paths, func(a, b []*x509.Certificate) int { return len(a) - len(b) })
	last := len(path) - 1
	return &signed{path[:last:last], RootID(path[last])}, nil
}
