package ca

import (
	"context"
	"errors"
	"time"

	"github.com/ashore-mesh/ashore/internal/spiffe"
)

// Identify returns the identity that the bearer token of a call to another service proves, and when
// the token expires. It accepts the tokens of issuers and clusters, and no join tokens. Its calls
// count toward the limits of CreateCertificate. Errors: *Refusal, with the answer of
// CreateCertificate, or there is no such token.
func (s *Server) Identify(ctx context.Context) (id spiffe.ID, expires time.Time, err error) {
	c := s.callOf(ctx)
	attest := s.attestorOf(c)
	if attest == nil || isToken(c.Bearer) {
		return id, expires, errors.New("the call has no token of an issuer or a cluster in the settings")
	}
	p, err := s.admit(ctx, c, attest)
	if err != nil {
		r := refusalOf(err)
		s.countRefusal(c, r)
		return id, expires, r
	}
	_, claims, err := parseJWT(c.Bearer, p.How) // it is verified
	if err == nil && claims.Expiry == nil {
		err = refusal(p.How, "jwt claims", "the token never expires: it has no claim exp")
	}
	if err != nil {
		return id, expires, err
	}
	return p.ID, claims.Expiry.Time(), nil
}
