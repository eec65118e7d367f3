package ca

import (
	"context"
	"crypto/x509"
	"errors"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ashore-mesh/ashore/internal/audit"
)

// refuse writes down why a call is refused, and makes of it what the caller may know.
func (s *Server) refuse(c Call, p *Proof, err error) error {
	r := refusalOf(err)
	s.metrics.refused.WithLabelValues(r.Reason).Inc()
	// counted, and not written down: whoever floods us shall not flood the log
	if r.Code == codes.ResourceExhausted && p == nil {
		return status.Error(r.Code, r.Public)
	}
	switch {
	case r.Code == codes.Unauthenticated, r.Code == codes.PermissionDenied, r.Code == codes.FailedPrecondition,
		r.Reason == unknownKey:
		s.refusedByAddress.Allow(addressKey(c.From), c.Now)
	}
	if s.writes(c, p) {
		if r.Reason == noSigner || r.Reason == noStorage {
			s.config.Log.Error("no certificate can be issued", "reason", r.Reason, "error", err)
		}
		s.tell(c, p, refusalEvent(c, p, r, s.unwritten.Swap(0)))
	}
	return status.Error(r.Code, r.Public)
}

// The reasons of refusals that are the control plane's own fault.
const noSigner, noStorage = "cannot sign", "storage"

// refusalOf is the refusal that an error is.
func refusalOf(err error) *Refusal {
	if r, ok := errors.AsType[*Refusal](err); ok {
		return r
	}
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return &Refusal{Code: codes.Canceled, Public: "the call has ended", Reason: "call ended", Err: err}
	case errors.Is(err, ErrRequest):
		return &Refusal{Code: codes.InvalidArgument, Public: err.Error(), Reason: "bad request", Err: err}
	case errors.Is(err, ErrSigner):
		return &Refusal{Code: codes.Unavailable, Public: "the authority cannot sign now; try again", Reason: noSigner,
			Err: err}
	}
	return &Refusal{Code: codes.Unavailable, Public: "the control plane cannot tell now; try again", Reason: noStorage,
		Err: err}
}

// writes says whether one more refusal is written down. New lines make room by deleting old ones, so
// all of them are bounded too.
func (s *Server) writes(c Call, p *Proof) bool {
	by := addressKey(c.From)
	if p != nil {
		by = p.Caller
	}
	if ok, _ := s.written.Allow(by, c.Now); ok {
		if ok, _ = s.writtenAll.Allow("", c.Now); ok {
			return true
		}
	}
	s.unwritten.Add(1)
	return false
}

// refusalEvent is what the audit log says of a refusal: all of it. unwritten is how many were
// left out before.
func refusalEvent(c Call, p *Proof, r *Refusal, unwritten int64) audit.Event {
	e := audit.Event{Action: audit.CertificateRefuse, Outcome: audit.Refused, Reason: r.Error(),
		Details: map[string]string{"cause": r.Reason}}
	if r.Code == codes.Unavailable || r.Code == codes.Canceled {
		e.Outcome = audit.Failed
	}
	if isToken(c.Bearer) {
		e.Action = audit.TokenRefuse
		if id, _, err := parseToken(c.Bearer); err == nil {
			e.Target = id
		}
	}
	if unwritten > 0 {
		e.Details["unwritten"] = strconv.FormatInt(unwritten, 10)
	}
	if p == nil && len(c.Peer) > 0 { // claimed and not proven
		e.Details["claims"], e.Details["serial"] = claimed(c.Peer[0]), serialText(c.Peer[0])
	}
	return e
}

// claimed is what a certificate that proved nothing says.
func claimed(leaf *x509.Certificate) string {
	if uris := leaf.URIs; len(uris) > 0 {
		return uris[0].String()
	}
	return leaf.Subject.String()
}

// issued writes down that a certificate is handed out.
func (s *Server) issued(c Call, x issued) {
	s.metrics.issued.WithLabelValues(x.proof.How).Inc()
	details := map[string]string{
		"workload": x.workload, "how": x.proof.How, "serial": serialText(x.leaf), "sha256": Fingerprint(x.leaf),
		"notAfter": x.leaf.NotAfter.Format(time.RFC3339), "key": x.key.String(),
	}
	if x.proof.byIndex {
		details["by"] = "index"
	}
	if x.proof.How == byToken {
		s.tell(c, x.proof, audit.Event{Action: audit.TokenUse, Target: x.workload,
			Details: map[string]string{"token": x.proof.Caller, "group": x.proof.Group, "key": x.key.String()}})
	}
	if x.proof.Leaf == nil {
		join := audit.Event{Action: audit.WorkloadJoin, Target: x.workload,
			Details: map[string]string{"how": x.proof.How, "group": x.proof.Group, "key": x.key.String()}}
		if x.replaced != "" {
			join.Details["replaced"] = x.replaced
		}
		s.tell(c, x.proof, join)
	}
	s.tell(c, x.proof, audit.Event{Action: audit.CertificateIssue, Target: x.proof.ID.String(), Details: details})
}

// tell writes an event of a call down, with who called as far as it is proven.
func (s *Server) tell(c Call, p *Proof, e audit.Event) {
	e.Time = c.Now
	e.Actor = c.From.String()
	if e.Details == nil {
		e.Details = map[string]string{}
	}
	if p != nil {
		e.Actor = p.Caller
		if p.How != byReplica {
			e.Actor = p.ID.String()
		}
		e.Details["from"] = c.From.String()
		if e.Details["group"] == "" && p.Group != "" {
			e.Details["group"] = p.Group
		}
	}
	s.config.Audit(e)
}
