package ca

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"google.golang.org/grpc/codes"

	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/connlimit"
)

// refuse records why a call is refused, and returns what the caller may know. It records nothing for
// an agent that asks for its identity.
func (s *Server) refuse(c Call, p *Proof, err error) error {
	r := refusalOf(err)
	if r.Reason == noNames { // a question, not a mistake: agents ask again with the identity in the answer
		return r.GRPCStatus().Err()
	}
	s.metrics.refused.WithLabelValues(r.Reason).Inc()
	// Only counted, so that a flood of calls does not fill the audit log.
	if r.Code == codes.ResourceExhausted && p == nil {
		return r.GRPCStatus().Err()
	}
	s.countRefusal(c, r)
	if ok, unwritten := s.writes(c, p); ok {
		if r.Reason == noSigner || r.Reason == noStorage {
			s.config.Log.Error("no certificate can be issued", "reason", r.Reason, "error", err)
		}
		s.audit(c, p, refusalEvent(c, p, r, unwritten))
	}
	return r.GRPCStatus().Err()
}

// countRefusal counts a refusal that is the caller's fault against its address.
func (s *Server) countRefusal(c Call, r *Refusal) {
	switch {
	case r.Code == codes.Unauthenticated, r.Code == codes.PermissionDenied, r.Code == codes.FailedPrecondition,
		r.Reason == unknownKey:
		s.refusedByAddress.Allow(connlimit.Network(c.From).String(), c.Now)
	}
}

// The reasons of refusals that are the control plane's own fault.
const noSigner, noStorage = "cannot sign", "storage"

// refusalOf makes a refusal of an error.
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
	return &Refusal{Code: codes.Unavailable, Public: "the control plane cannot decide now; try again",
		Reason: noStorage, Err: err}
}

// writes reports whether one more refusal is written to the audit log, and how many were not before
// it. New lines delete old files, so all refusals together are bounded too.
func (s *Server) writes(c Call, p *Proof) (ok bool, unwritten int) {
	by := connlimit.Network(c.From).String()
	if p != nil {
		by = p.Caller
	}
	ok, unwritten = s.written.Allow(by, c.Now)
	if ok {
		var others int
		ok, others = s.writtenAll.Allow("", c.Now)
		unwritten += others
	}
	return ok, unwritten
}

// refusalEvent is the entry of a refusal in the audit log, with the whole reason. unwritten is how
// many were omitted before.
func refusalEvent(c Call, p *Proof, r *Refusal, unwritten int) audit.Event {
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
		e.Details["unwritten"] = strconv.Itoa(unwritten)
	}
	if p == nil && len(c.Peer) > 0 { // not proven
		leaf := c.Peer[0]
		e.Details["claims"], e.Details["serial"] = leaf.Subject.String(), serialText(leaf)
		if len(leaf.URIs) > 0 {
			e.Details["claims"] = leaf.URIs[0].String()
		}
	}
	return e
}

// issued records that a certificate is handed out.
func (s *Server) issued(c Call, x *issuance) {
	p, key := x.proof, x.ask.KeyHash
	s.metrics.issued.WithLabelValues(p.How).Inc()
	if p.How == byToken {
		use := audit.Event{Action: audit.TokenUse, Target: x.workload,
			Details: map[string]string{"token": p.Caller, "key": key}}
		if x.replaced != "" {
			use.Details["replaced"] = x.replaced
		}
		s.audit(c, p, use)
	}
	s.audit(c, p, audit.Event{Action: audit.CertificateIssue, Target: p.ID.String(), Details: map[string]string{
		"workload": x.workload, "how": p.How, "serial": serialText(x.leaf), "sha256": Fingerprint(x.leaf),
		"notAfter": x.leaf.NotAfter.Format(time.RFC3339), "key": key,
	}})
}

// audit records an event of a call in the audit log, with the caller as far as it is proven.
func (s *Server) audit(c Call, p *Proof, e audit.Event) {
	e.Time, e.Actor = c.Now, c.From.String()
	if p != nil {
		e.Actor = p.Caller
		if p.How != byReplica {
			e.Actor = p.ID.String()
		}
		e.Details["from"] = c.From.String()
		if p.Group != "" {
			e.Details["group"] = p.Group
		}
	}
	s.config.Audit(e)
}

type serverMetrics struct {
	issued  *prometheus.CounterVec // by proof
	refused *prometheus.CounterVec // by reason
	latency prometheus.Histogram
}

// newServerMetrics registers them with r, which may be nil.
func newServerMetrics(r prometheus.Registerer) serverMetrics {
	auto := promauto.With(r)
	m := serverMetrics{
		issued: auto.NewCounterVec(prometheus.CounterOpts{Name: "ashore_ca_issued_total",
			Help: "Certificates that were issued, by proof of identity."}, []string{"how"}),
		refused: auto.NewCounterVec(prometheus.CounterOpts{Name: "ashore_ca_refused_total",
			Help: "Calls that got no certificate, by reason."}, []string{"reason"}),
		latency: auto.NewHistogram(prometheus.HistogramOpts{Name: "ashore_ca_seconds",
			Help:    "Seconds that a call for a certificate takes.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}}),
	}
	for _, how := range []string{byToken, byCertificate, byJWT, byReview, byReplica} {
		m.issued.WithLabelValues(how) // so that the first increase counts
	}
	return m
}
