package ca

import (
	"context"
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/readfile"
	"github.com/ashore-mesh/ashore/internal/record"
)

// errAsked says that an intermediate was asked for and nobody has answered yet.
var errAsked = errors.New("an intermediate was asked for, and no replica that has the root's key has answered yet: one has to run")

// ErrClock says that a replica gets nothing that it can use because its clock and another's differ.
var ErrClock = errors.New("the clocks of two replicas differ")

// askPatience is how long a new replica waits for its first intermediate before it gives up, to be
// started again.
const askPatience = time.Minute

// await is refresh for a start: a new replica waits for its intermediate.
func (s *selfSigned) await(ctx context.Context, now time.Time) error {
	changed := s.records.records.Watch(ctx, table)
	late := time.NewTimer(askPatience)
	defer late.Stop()
	told := false
	for {
		err := s.refresh(ctx, now)
		if !errors.Is(err, errAsked) {
			return err
		}
		s.records.sayHere(ctx, s.replica.unsaid, s.log)
		if !told {
			s.log.Info("this replica waits for an intermediate from one that has the root's key",
				"replica", s.replica.id)
			told = true
		}
		again := time.NewTimer(time.Second)
		select {
		case <-ctx.Done():
			again.Stop()
			return ctx.Err()
		case <-late.C:
			again.Stop()
			return err
		case <-changed:
		case <-again.C:
		}
		again.Stop()
	}
}

// asked is an intermediate below a root from a replica that has its key, kept in a file by that
// name. Errors: errAsked while there is no answer; why there is none.
func (s *selfSigned) asked(ctx context.Context, root *x509.Certificate, name string, now time.Time) (*pair, error) {
	secret, err := s.expects(root, now)
	if err != nil {
		return nil, err
	}
	key, err := s.askedKey()
	if err != nil {
		return nil, err
	}
	m := s.replica
	for _, c := range m.record.certificates() {
		if p := (&pair{key: key, cert: c}); sameKey(c.PublicKey, key.Public()) && p.under(root, now) {
			return p, s.takeAnswer(p, root, name)
		} else if sameKey(c.PublicKey, key.Public()) && now.Before(c.NotBefore) {
			return nil, fmt.Errorf("%w: the intermediate of this replica begins at %s, and this machine's clock says %s: set the clock", ErrClock, c.NotBefore.Format(time.RFC3339), now.UTC().Format(time.RFC3339))
		}
	}
	q, err := s.request(key, root, secret, now)
	if err != nil {
		return nil, err
	}
	if was := m.record.Request; was != nil && was.Root == q.Root && was.Token == q.Token &&
		sameRequestKey(was.CSR, key.Public()) && s.provenBy(secret, was) {
		if m.record.Ahead && now.Before(was.At) { // the clock was set
			return nil, s.ask(ctx, q, "", now)
		}
		if err := m.stillHere(now); err != nil {
			return nil, err
		}
		return nil, s.unanswered(secret, was)
	}
	return nil, s.askAnew(ctx, q, secret, now)
}

// askAnew writes a request in the place of what the record says, unless another one that has this
// replica's ID writes it too. Errors: errAsked when it stands.
func (s *selfSigned) askAnew(ctx context.Context, q *replicaRequest, secret *replicaSecret, now time.Time) error {
	what, err := asksFor(q, secret)
	if err == nil {
		err = s.replica.contested(s.dir, what, now)
	}
	if err != nil {
		return err
	}
	return s.ask(ctx, q, what, now)
}

// unanswered is why there is no intermediate although it was asked for.
func (s *selfSigned) unanswered(secret *replicaSecret, was *replicaRequest) error {
	switch r := s.replica.record; {
	case r.Ahead:
		return fmt.Errorf("%w: this replica gets no intermediate: %s; then it asks anew", ErrClock, r.Refused)
	case r.Refused != "":
		return s.refused(secret, r.Refused)
	}
	return fmt.Errorf("%w (since %s)", errAsked, was.At.UTC().Format(time.RFC3339))
}

// ask writes a request; what is what the record says by it, as contested takes it. Errors: errAsked
// when it stands.
func (s *selfSigned) ask(ctx context.Context, q *replicaRequest, what string, now time.Time) error {
	m := s.replica
	r := m.record
	r.Format, r.Name, r.Request, r.Refused, r.RefusedAt, r.Ahead, r.Seen = 1, m.name, q, "", time.Time{}, false, now.UTC()
	if err := s.writeReplica(ctx, m.id, r, m.version); err == nil {
		m.note(what, now)
	} else if !errors.Is(err, record.ErrConflict) {
		return fmt.Errorf("ask for an intermediate: %w", err)
	}
	return errAsked
}

// stillHere has the records know now and then that this replica is there: by sayHere, which needs
// nothing that others wait for.
func (m *membership) stillHere(now time.Time) error {
	if !m.record.stale(now) {
		return nil
	}
	r := m.record
	r.Seen = now.UTC()
	w, err := r.write(m.id, m.version)
	if err != nil {
		return err
	}
	m.unsaid = &w
	return nil
}

// sayHere writes that this replica is there; w may be nil. Where the records take nothing it is
// told of elsewhere, and this can wait.
func (s stateStore) sayHere(ctx context.Context, w *record.Write, log hclog.Logger) {
	if w == nil {
		return
	}
	if err := s.records.Commit(ctx, *w); err != nil && !errors.Is(err, record.ErrConflict) {
		log.Debug("the records are not told that this replica is there", "error", err)
	}
}

// provenBy says whether a request of this replica was proven by what proves its requests now: not
// when the file of the token held another one then, of the same ID. The answer to that is no answer
// to this one.
func (s *selfSigned) provenBy(secret *replicaSecret, was *replicaRequest) bool {
	return secret == nil || ed25519.Verify(secret.key.Public().(ed25519.PublicKey),
		was.proven(s.trustDomain, s.replica.id), was.Proof)
}

// refused tells why this replica gets no intermediate, and what to do.
func (s *selfSigned) refused(secret *replicaSecret, why string) error {
	if secret == nil {
		return fmt.Errorf("this replica gets no intermediate: %s; make a replica token where the root's key is (\"ashorectl ca replica-token\") and put it into the file that the setting ca.replicaToken names", why)
	}
	return s.tokenError(fmt.Errorf("this replica gets no intermediate: %s; see that the file holds the token exactly as it was printed, or make another where the root's key is (\"ashorectl ca replica-token\"): "+
		"as soon as the file holds another, this replica asks anew", why))
}

// ReplicaTokenError is that the token of a replica does not serve, in its file or in the setting
// that names that.
type ReplicaTokenError struct {
	// File is where the token is to stand; empty: the setting names none.
	File string
	// Err says what is wrong.
	Err error
}

// Error names the setting and the file.
func (e *ReplicaTokenError) Error() string {
	if e.File == "" {
		return fmt.Sprintf("setting ca.replicaToken: %v", e.Err)
	}
	return fmt.Sprintf("setting ca.replicaToken, file %s: %v", e.File, e.Err)
}

// Unwrap is what is wrong.
func (e *ReplicaTokenError) Unwrap() error { return e.Err }

// tokenError is an error about the token of this replica.
func (s *selfSigned) tokenError(err error) error {
	return &ReplicaTokenError{File: s.replica.tokenFile, Err: err}
}

// takeAnswer keeps an intermediate that was asked for.
func (s *selfSigned) takeAnswer(p *pair, root *x509.Certificate, name string) error {
	if !p.cert.IsCA {
		return errors.New("what the records have for this replica is no certificate of an authority: remove " + s.dir.at(askedFile) + ", and it asks with another key")
	}
	if err := s.dir.writePair(name, p); err != nil {
		return err
	}
	if err := s.dir.remove(askedFile); err != nil {
		return err
	}
	s.log.Info("got an intermediate", "root", RootID(root), "serial", serialText(p.cert), "ends", p.cert.NotAfter)
	s.audit(audit.Event{Action: audit.CALoad, Actor: "ashored", Target: "intermediate", Details: map[string]string{
		"root": RootID(root), "serial": serialText(p.cert), "notAfter": p.cert.NotAfter.Format(time.RFC3339), "replica": s.replica.id,
	}})
	return nil
}

// askedKey is the key that is asked for: it stays the same until there is an answer.
func (s *selfSigned) askedKey() (crypto.Signer, error) {
	text, info, err := readfile.Read(s.dir.at(askedFile), maxPlugged)
	if err == nil {
		if err := checkKeyMode(s.dir.at(askedFile), info.Mode()); err != nil {
			return nil, err
		}
		key, err := DecodeKey(text)
		if err == nil {
			return key, nil
		}
		s.log.Warn("the key that an intermediate was asked for cannot be read; a new one is made",
			"file", s.dir.at(askedFile), "error", err)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	key, err := NewKey(s.kind, rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("%w: make a key: %w", ErrSigner, err)
	}
	if text, err = EncodeKey(key); err != nil {
		return nil, err
	}
	return key, s.dir.write(askedFile, text, 0o600)
}

// expects is the token that a replica proves itself by which has no intermediate that is trusted;
// nil: it has one. Errors: there is none, or it names another root than the records: who writes
// these does not lead a new replica into another mesh, neither when it asks nor when it is
// answered.
func (s *selfSigned) expects(root *x509.Certificate, now time.Time) (*replicaSecret, error) {
	if s.inter != nil && s.trusts(s.inter.cert, now) {
		return nil, nil
	}
	secret, err := s.replicaSecret()
	if err != nil {
		return nil, err
	}
	if id := RootID(root); secret.root != id {
		return nil, s.tokenError(fmt.Errorf("the records say that root %s signs, and the token names root %s: it is of another mesh, older than a rotation, or mistyped; make a new one (\"ashorectl ca replica-token\")", id, secret.root))
	}
	return &secret, nil
}

// request makes a request for an intermediate, proven by a token or, without one, by the
// intermediate that this replica has.
func (s *selfSigned) request(key crypto.Signer, root *x509.Certificate, secret *replicaSecret,
	now time.Time) (*replicaRequest, error) {
	csr, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSigner, err)
	}
	q := &replicaRequest{Root: RootID(root), CSR: csr, At: now.UTC()}
	if secret == nil {
		q.By = s.inter.cert.Raw
		q.Proof, err = signText(s.inter.key, q.proven(s.trustDomain, s.replica.id))
		return q, err
	}
	q.Token = secret.id
	q.Proof = ed25519.Sign(secret.key, q.proven(s.trustDomain, s.replica.id))
	return q, nil
}

// trusts says whether a certificate of an authority is valid and below a root of the state.
func (s *selfSigned) trusts(c *x509.Certificate, now time.Time) bool {
	for id := range s.state.Roots {
		if root, err := s.state.root(id); err == nil && c.IsCA && (&pair{cert: c}).under(root, now) {
			return true
		}
	}
	return false
}

// replicaSecret reads the token of this replica.
func (s *selfSigned) replicaSecret() (replicaSecret, error) {
	file := s.replica.tokenFile
	if file == "" {
		return replicaSecret{}, s.tokenError(fmt.Errorf("this mesh has a root, whose key is with another replica, and nothing proves that this one belongs to it: run \"ashorectl ca replica-token\" there, "+
			"put what it prints into a file here, readable by ashored alone, and name the file in the setting ca.replicaToken (or restore %s from a backup)", s.dir.at(rootFile)))
	}
	text, info, err := readfile.Read(file, 4<<10)
	if err != nil {
		return replicaSecret{}, s.tokenError(fmt.Errorf("%w: put what \"ashorectl ca replica-token\" prints into it",
			err))
	}
	if err := checkKeyMode(file, info.Mode()); err != nil {
		return replicaSecret{}, s.tokenError(err)
	}
	secret, err := parseReplicaToken(string(text))
	if err != nil {
		return replicaSecret{}, s.tokenError(err)
	}
	return secret, nil
}

// sameRequestKey says whether a signing request is for a key.
func sameRequestKey(csr []byte, key crypto.PublicKey) bool {
	r, err := x509.ParseCertificateRequest(csr)
	return err == nil && sameKey(r.PublicKey, key)
}
