package ca

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/record"
)

const (
	// replicaTokenKept is how long a token stands after its end.
	replicaTokenKept = 24 * time.Hour
	// replicaKept is how long the record of a replica stands that has nothing to sign with and was
	// not heard of.
	replicaKept = 30 * 24 * time.Hour
	// clockAhead is how far ahead of the one that answers the clock of a replica may be that asks.
	// Half of the life of an intermediate ahead it would be renewed at once, and all of it ahead it
	// would have ended: such a replica asked without end.
	clockAhead = 24 * time.Hour
)

// keyHash names the key of a signing request by its content.
func keyHash(r *x509.CertificateRequest) string {
	sum := sha256.Sum256(r.RawSubjectPublicKeyInfo)
	return hex.EncodeToString(sum[:])
}

// answer gives other replicas the intermediates that they ask for, where this one has the root's
// key, and forgets what has ended.
func (s *selfSigned) answer(ctx context.Context, now time.Time) error {
	if s.replica == nil {
		return nil
	}
	list, err := s.records.records.List(ctx, table)
	if err != nil {
		return err
	}
	var errs []error
	for _, rec := range list {
		if id, ok := strings.CutPrefix(rec.Name, replicaRecords); ok && id != s.replica.id {
			errs = append(errs, s.answerOne(ctx, id, rec, now))
		} else if strings.HasPrefix(rec.Name, replicaTokens) {
			errs = append(errs, s.forgetToken(ctx, rec, now))
		}
	}
	return errors.Join(errs...)
}

// answerOne does what is to be done about the record of another replica.
func (s *selfSigned) answerOne(ctx context.Context, id string, rec record.Record, now time.Time) error {
	var r replicaRecord
	if err := json.Unmarshal(rec.Value, &r); err != nil || r.Format != 1 {
		return nil // readReplicas tells of it
	}
	q := r.Request
	switch {
	case q == nil || r.Refused != "" && (!r.Ahead || q.ahead(now)):
		return s.forgetReplica(ctx, id, rec, r, now)
	case s.state.Roots[q.Root] == nil || q.Root != s.state.Active && q.Root != s.state.Next:
		return s.forgetReplica(ctx, id, rec, r, now) // it asks anew for one that signs
	}
	root, err := s.state.root(q.Root)
	if err != nil {
		return err
	}
	by, err := s.rootKey(root)
	if err != nil {
		return s.forgetReplica(ctx, id, rec, r, now) // another replica answers
	}
	if q.ahead(now) {
		r.Ahead = true
		return s.refuse(ctx, id, r, rec.Version, q.clocks(s.replica.name, now), now)
	}
	cert, writes, err := s.grant(ctx, id, q, by, now)
	if why, ok := errors.AsType[refusal](err); ok {
		r.Ahead = false
		return s.refuse(ctx, id, r, rec.Version, string(why), now)
	} else if err != nil {
		return err
	}
	to := r.with(cert, now)
	to.Request, to.Refused, to.RefusedAt, to.Ahead = nil, "", time.Time{}, false
	err = s.writeReplica(ctx, id, to, rec.Version, writes...)
	if errors.Is(err, record.ErrConflict) { // another replica was faster, or the request has changed
		return nil
	} else if err != nil {
		return fmt.Errorf("answer replica %s: %w", r.Name, err)
	}
	s.log.Info("made an intermediate for another replica", "replica", r.Name, "id", id, "root", q.Root,
		"serial", serialText(cert), "ends", cert.NotAfter)
	s.audit(audit.Event{Action: audit.ReplicaIssue, Actor: "replica " + id, Target: r.Name, Details: map[string]string{
		"root": q.Root, "serial": serialText(cert), "notAfter": cert.NotAfter.Format(time.RFC3339), "token": q.Token,
	}})
	return nil
}

// grant makes the intermediate that was asked for, if it was proven, and what is to be written with
// it. Errors: refusal.
func (s *selfSigned) grant(ctx context.Context, id string, q *replicaRequest, by *pair,
	now time.Time) (*x509.Certificate, []record.Write, error) {
	csr, err := x509.ParseCertificateRequest(q.CSR)
	if err != nil || csr.CheckSignature() != nil {
		return nil, nil, refusal("its signing request is damaged")
	}
	if err := checkKey(csr.PublicKey); err != nil {
		return nil, nil, refusal(err.Error())
	}
	var writes []record.Write
	if q.Token != "" {
		writes, err = s.takeReplicaToken(ctx, id, q, keyHash(csr), now)
	} else {
		err = s.proven(id, q, now)
	}
	if err != nil {
		return nil, nil, err
	}
	above, err := NewSigner(by.cert, by.key, nil, by.cert, now)
	if err != nil {
		return nil, nil, err
	}
	cert, err := above.NewIntermediate(Authority{Name: "Ashore intermediate of " + s.trustDomain,
		Validity: intermediateLife, Leaves: true}, csr.PublicKey, now, rand.Reader)
	return cert, writes, err
}

// takeReplicaToken says whether a request is proven by a token that may be used for its key, and
// how that is noted.
func (s *selfSigned) takeReplicaToken(ctx context.Context, id string, q *replicaRequest, key string,
	now time.Time) ([]record.Write, error) {
	t, version, err := s.readReplicaToken(ctx, q.Token)
	switch {
	case err != nil:
		return nil, err
	case !ed25519.Verify(t.Public, q.proven(s.trustDomain, id), q.Proof):
		return nil, refusal("it does not have the replica token that it names")
	case t.Key != "" && t.Key != key:
		return nil, refusal("its replica token was used for another key")
	case !now.Before(t.Expires):
		return nil, refusal("its replica token ended at " + t.Expires.Format(time.RFC3339))
	}
	t.Key = key
	value, err := json.Marshal(t)
	return []record.Write{{Key: record.Key{Table: table, Name: replicaTokens + q.Token}, Value: value,
		Version: version}}, err
}

// proven says whether a request is proven by an intermediate that is valid.
func (s *selfSigned) proven(id string, q *replicaRequest, now time.Time) error {
	by, err := x509.ParseCertificate(q.By)
	switch {
	case err != nil:
		return refusal("what proves it cannot be read")
	case !s.trusts(by, now):
		return refusal("its intermediate has ended, or leads to no root that is trusted")
	case checkText(by.PublicKey, q.proven(s.trustDomain, id), q.Proof) != nil:
		return refusal("it does not have the key of the intermediate that it shows")
	}
	return nil
}

// ahead says that who asks has a clock so far ahead that what it gets would be of no use to it.
func (q *replicaRequest) ahead(now time.Time) bool { return q.At.After(now.Add(clockAhead)) }

// clocks tells of the two clocks, for who asks and who looks on.
func (q *replicaRequest) clocks(by string, now time.Time) string {
	return fmt.Sprintf("its clock said %s when that of %s, which has the root's key, said %s: set the clock that is wrong (timedatectl, chrony)", q.At.UTC().Format(time.RFC3339), by, now.UTC().Format(time.RFC3339))
}

// refuse writes down why a replica gets no intermediate.
func (s *selfSigned) refuse(ctx context.Context, id string, r replicaRecord, version, why string, now time.Time) error {
	if r.Refused == why {
		return nil
	}
	r.Refused, r.RefusedAt = why, now.UTC()
	err := s.writeReplica(ctx, id, r, version)
	if errors.Is(err, record.ErrConflict) {
		return nil
	}
	if err == nil {
		s.log.Warn("a replica gets no intermediate", "replica", r.Name, "id", id, "why", why)
		s.audit(audit.Event{Action: audit.ReplicaIssue, Actor: "replica " + id, Target: r.Name, Outcome: audit.Refused,
			Reason: why, Details: map[string]string{"token": r.Request.Token}})
	}
	return err
}

// forgetReplica deletes the record of a replica that has nothing to sign with and was not heard of
// for long.
func (s *selfSigned) forgetReplica(ctx context.Context, id string, rec record.Record, r replicaRecord,
	now time.Time) error {
	if r.signs(now) || now.Before(r.heard(now).Add(replicaKept)) {
		return nil
	}
	// One that came back with what has ended here is there, and one of the two clocks is wrong.
	if at, found := s.replica.forgot[id]; found && now.Before(at.Add(replicaKept)) {
		return nil
	}
	s.log.Info("a replica is forgotten: it has no intermediate, by this machine's clock, and was not heard of for long",
		"replica", r.Name, "id", id, "now", now.UTC())
	if s.replica.forgot == nil {
		s.replica.forgot = map[string]time.Time{}
	}
	s.replica.forgot[id] = now
	return s.forget(ctx, rec)
}

// forgetToken deletes a token that has ended.
func (s *selfSigned) forgetToken(ctx context.Context, rec record.Record, now time.Time) error {
	var t replicaToken
	if json.Unmarshal(rec.Value, &t) == nil && now.Before(t.Expires.Add(replicaTokenKept)) {
		return nil
	}
	return s.forget(ctx, rec)
}

// forget deletes a record unless it has changed.
func (s *selfSigned) forget(ctx context.Context, rec record.Record) error {
	if err := s.records.records.Commit(ctx, record.Write{Key: rec.Key, Version: rec.Version}); err != nil &&
		!errors.Is(err, record.ErrConflict) {
		return err
	}
	return nil
}
