package ca

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/record"
)

// requestKept is how long a request stands that nobody answers, and a token after its end.
const requestKept = 24 * time.Hour

// keyHash names the key of a signing request by its content.
func keyHash(r *x509.CertificateRequest) string {
	sum := sha256.Sum256(r.RawSubjectPublicKeyInfo)
	return hex.EncodeToString(sum[:])
}

// answer gives other replicas the intermediates that they ask for, where this one has the root's key, and forgets what has
// ended.
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
	case q == nil || r.Refused != "":
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
		return nil // another replica answers
	}
	cert, writes, err := s.grant(ctx, id, q, by, now)
	if why, ok := errors.AsType[refusal](err); ok {
		return s.refuse(ctx, id, r, rec.Version, string(why))
	} else if err != nil {
		return err
	}
	to := r.with(cert, now)
	to.Request = nil
	err = s.writeReplica(ctx, id, to, rec.Version, writes...)
	if errors.Is(err, record.ErrConflict) { // another replica was faster, or the request has changed
		return nil
	} else if err != nil {
		return fmt.Errorf("answer replica %s: %w", r.Name, err)
	}
	s.log.Info("made an intermediate for another replica", "replica", r.Name, "id", id, "root", q.Root, "serial", serialText(cert), "ends", cert.NotAfter)
	s.audit(audit.Event{Action: audit.ReplicaIssue, Actor: "replica " + id, Target: r.Name, Details: map[string]string{
		"root": q.Root, "serial": serialText(cert), "notAfter": cert.NotAfter.Format(time.RFC3339), "token": q.Token,
	}})
	return nil
}

// grant makes the intermediate that was asked for, if it was proven, and what is to be written with it. Errors: refusal.
func (s *selfSigned) grant(ctx context.Context, id string, q *replicaRequest, by *pair, now time.Time) (*x509.Certificate, []record.Write, error) {
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
	cert, err := above.NewIntermediate(Authority{Name: "Ashore intermediate of " + s.trustDomain, Validity: intermediateLife, Leaves: true}, csr.PublicKey, now, rand.Reader)
	return cert, writes, err
}

// takeReplicaToken says whether a request is proven by a token that may be used for its key, and how that is noted.
func (s *selfSigned) takeReplicaToken(ctx context.Context, id string, q *replicaRequest, key string, now time.Time) ([]record.Write, error) {
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
	return []record.Write{{Key: record.Key{Table: table, Name: replicaTokens + q.Token}, Value: value, Version: version}}, err
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

// refuse writes down why a replica gets no intermediate.
func (s *selfSigned) refuse(ctx context.Context, id string, r replicaRecord, version, why string) error {
	r.Refused = why
	err := s.writeReplica(ctx, id, r, version)
	if errors.Is(err, record.ErrConflict) {
		return nil
	}
	if err == nil {
		s.log.Warn("a replica gets no intermediate", "replica", r.Name, "id", id, "why", why)
		s.audit(audit.Event{Action: audit.ReplicaIssue, Actor: "replica " + id, Target: r.Name, Outcome: audit.Refused, Reason: why, Details: map[string]string{"token": r.Request.Token}})
	}
	return err
}

// forgetReplica deletes the record of a replica that has nothing to sign with and asks for nothing.
func (s *selfSigned) forgetReplica(ctx context.Context, id string, rec record.Record, r replicaRecord, now time.Time) error {
	if slices.ContainsFunc(r.certificates(), func(c *x509.Certificate) bool { return now.Before(c.NotAfter) }) || r.Request != nil && now.Before(r.Request.At.Add(requestKept)) {
		return nil
	}
	if s.replica.forgot[id] { // it came back with what has ended here, so it is there, and one of the two clocks is wrong
		return nil
	}
	s.log.Info("a replica is forgotten: its intermediate has ended by this machine's clock", "replica", r.Name, "id", id, "now", now.UTC())
	if s.replica.forgot == nil {
		s.replica.forgot = map[string]bool{}
	}
	s.replica.forgot[id] = true
	return s.forget(ctx, rec)
}

// forgetToken deletes a token that has ended.
func (s *selfSigned) forgetToken(ctx context.Context, rec record.Record, now time.Time) error {
	var t replicaToken
	if json.Unmarshal(rec.Value, &t) == nil && now.Before(t.Expires.Add(requestKept)) {
		return nil
	}
	return s.forget(ctx, rec)
}

// forget deletes a record unless it has changed.
func (s *selfSigned) forget(ctx context.Context, rec record.Record) error {
	if err := s.records.records.Commit(ctx, record.Write{Key: rec.Key, Version: rec.Version}); err != nil && !errors.Is(err, record.ErrConflict) {
		return err
	}
	return nil
}

// ReplicaStatus is another replica that signs below the same root.
type ReplicaStatus struct {
	// ID is what the records call it, and Name what people do.
	ID, Name string
	// State says what it waits for; empty: nothing.
	State string
	// Signer is its intermediate.
	Signer CertificateStatus
}

// status are the other replicas, for people.
func (m *membership) status(roots []*x509.Certificate, now time.Time) []ReplicaStatus {
	if m == nil {
		return nil
	}
	var out []ReplicaStatus
	for _, id := range slices.Sorted(maps.Keys(m.others)) {
		r := m.others[id]
		x := ReplicaStatus{ID: id, Name: r.Name}
		switch {
		case r.Refused != "":
			x.State = "refused: " + r.Refused
		case r.Request != nil:
			x.State = "waits for an intermediate since " + r.Request.At.UTC().Format(time.RFC3339)
		}
		for _, c := range r.certificates() {
			for _, root := range roots {
				if bytes.Equal(c.RawIssuer, root.RawSubject) && c.CheckSignatureFrom(root) == nil {
					x.Signer = CertificateStatus{Name: c.Subject.CommonName, Serial: serialText(c), Root: RootID(root), NotAfter: c.NotAfter, Renew: half(c)}
				}
			}
		}
		out = append(out, x)
	}
	return out
}
