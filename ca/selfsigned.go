package ca

import (
	"context"
	"crypto"
	"crypto/x509"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/record"
)

// The files of a folder of keys. Those with a key hold its certificate too, and only their owner can
// read them.
const (
	rootFile         = "root-key.pem"
	nextRootFile     = "next-root-key.pem" // until the records have the new root
	intermediateFile = "intermediate-key.pem"
	// replicaTokenFile has the replica token that an operator put there. It is read while this replica
	// has no intermediate.
	replicaTokenFile = "replica-token"
)

const (
	// rootLife is how long a root lives.
	rootLife = 10 * 365 * 24 * time.Hour
	// intermediateLife is how long an intermediate lives. It is renewed after half of that.
	intermediateLife = 30 * 24 * time.Hour
)

// selfSigned is an authority with a root of its own. Roots and the state of a rotation are records,
// which all replicas share; keys are only in its folder. What signs is an intermediate of this
// replica.
type selfSigned struct {
	config *ManagerConfig // immutable; with an Address there are other replicas
	dir    folder         // immutable
	states recordTable[State]
	view   *atomic.Pointer[view] // of the manager; nil until this replica signs

	state   State
	version string // of the record of state
	inter   *pair  // this replica's intermediate; nil: there is none yet
	signer  *Signer
	bundle  *Bundle
	// overdue is why the intermediate cannot be renewed; empty: it can, or need not be.
	overdue string
}

// stateName is the name of the record of the state.
const stateName = "rotation"

// current implements authority.
func (s *selfSigned) current() (*Signer, *Bundle) { return s.signer, s.bundle }

// start finds the root, or makes the first one. It never makes a root when the records or the files
// name another one, because nobody would trust what it signs.
func (s *selfSigned) start(ctx context.Context, now time.Time) error {
	if err := s.dir.open(); err != nil {
		return err
	}
	for _, name := range []string{rootFile, nextRootFile} {
		if _, err := s.dir.pair(name); err != nil {
			return fmt.Errorf("%w; restore the file from a backup: without it nothing new can be signed once the "+
				"intermediate expires", err)
		}
	}
	var err error
	if s.inter, err = s.dir.pair(intermediateFile); err != nil { // chains include their intermediate
		s.config.Log.Warn("the intermediate cannot be read; a new one is made", "error", err)
	}
	_, version, err := s.states.get(ctx, stateName)
	if err == nil && version == "" {
		err = s.first(ctx, now)
	}
	if err != nil {
		return err
	}
	return s.refresh(ctx, now)
}

// first records the mesh's first root: that in the folder, or a new one where one may be made.
func (s *selfSigned) first(ctx context.Context, now time.Time) error {
	root, err := s.dir.pair(rootFile)
	switch {
	case err != nil:
		return err
	case root != nil:
		s.config.Log.Warn("the records have no root; the one in the folder is used", "root", RootID(root.cert),
			"file", s.dir.at(rootFile))
	case s.dir.has(nextRootFile) || s.dir.has(intermediateFile):
		return fmt.Errorf("%s or %s says that there was a root, and neither %s nor the records have it: restore both "+
			"from a backup, or move the whole state folder aside to begin anew: every workload has to join again then",
			s.dir.at(nextRootFile), intermediateFile, rootFile)
	case s.config.Existing:
		return fmt.Errorf("there is no root certificate in %s: create one with \"ashored init\"; if this mesh has a "+
			"root, correct the settings ca.plugged and store, because every workload would have to join again",
			s.config.Dir)
	default:
		if root, err = s.makeRoot(now); err == nil {
			err = s.dir.writePair(rootFile, root)
		}
		if err != nil {
			return err
		}
		s.report("root", root.cert, root.cert)
	}
	id := RootID(root.cert)
	return s.states.commit(ctx, stateName, State{Since: now.UTC(), Active: id,
		Roots: map[string][]byte{id: root.cert.Raw}}, "")
}

// makeRoot makes a root.
func (s *selfSigned) makeRoot(now time.Time) (*pair, error) {
	key := NewKey()
	root, err := NewRoot("Ashore root of "+s.config.TrustDomain, rootLife, key, now)
	if err != nil {
		return nil, err
	}
	return &pair{key: key, cert: root.Cert}, nil
}

// look implements authority.
func (s *selfSigned) look(ctx context.Context, now time.Time) error {
	if err := s.refresh(ctx, now); err != nil || !s.state.rotating() {
		return err
	}
	dependents, err := s.config.Dependents(ctx)
	if err != nil || len(s.waiting(dependents, now)) > 0 {
		return err
	}
	err = s.commit(ctx, s.state.retired(now), RotateRequest{Actor: "ashored"}, 0)
	if err == nil || errors.Is(err, record.ErrConflict) { // another replica was faster
		err = s.refresh(ctx, now)
	}
	return err
}

// refresh takes the state of the records, and renews the intermediate.
func (s *selfSigned) refresh(ctx context.Context, now time.Time) error {
	st, version, err := s.states.get(ctx, stateName)
	switch {
	case err != nil:
		return err
	case version == "":
		return errors.New("the records do not have the mesh's root any more: restore the store from a backup")
	}
	bundle, err := st.bundle()
	if err != nil {
		return err
	}
	s.state, s.version = st, version
	if s.bundle == nil || s.bundle.ID != bundle.ID {
		s.bundle = bundle
	}
	if err := s.takeNextRoot(); err != nil {
		return err
	}
	return s.sign(ctx, now)
}

// takeNextRoot replaces the key of the old root by that of the new one once that is recorded.
func (s *selfSigned) takeNextRoot() error {
	p, err := s.dir.pair(nextRootFile)
	if err != nil || p == nil || RootID(p.cert) != s.state.Active {
		return err // one that was never recorded is replaced by the next rotation
	}
	return s.dir.rename(nextRootFile, rootFile)
}

// sign renews this replica's intermediate after half of its life, and makes a signer of it. If a new
// one cannot be had, the present one is used while it is below a trusted root.
func (s *selfSigned) sign(ctx context.Context, now time.Time) error {
	active, err := s.state.root(s.state.Active)
	if err != nil {
		return err
	}
	if s.inter == nil || !s.inter.under(active, now) ||
		due(s.inter.cert, earlier(now.Add(intermediateLife), active.NotAfter), now) {
		err = s.newIntermediate(ctx, active, now)
	} else if s.config.Address == "" {
		_, err = s.rootKey(active) // reported early if it is missing
	}
	root := s.above(now)
	if root == nil {
		return err
	}
	s.overdue = ""
	if err != nil {
		s.overdue = fmt.Sprintf("the intermediate cannot be renewed and expires at %s: %v",
			s.inter.cert.NotAfter.UTC().Format(time.RFC3339), err)
	}
	signer, err := NewSigner(s.inter.cert, s.inter.key, nil, NewBundle(root), now)
	if err != nil {
		return err
	}
	if s.state.rotating() && root.Equal(active) {
		cross, err := x509.ParseCertificate(s.state.Cross)
		if err != nil {
			return fmt.Errorf("the cross-signed root in the records: %w", err)
		}
		if now.Before(cross.NotAfter) {
			signer.Intermediates = append(signer.Intermediates, cross)
		}
	}
	if s.signer == nil || !s.signer.Cert.Equal(signer.Cert) ||
		len(s.signer.Intermediates) != len(signer.Intermediates) {
		s.signer = signer
	}
	return nil
}

// newIntermediate makes an intermediate below a root, or requests one from the replica that has the
// root's key.
func (s *selfSigned) newIntermediate(ctx context.Context, root *x509.Certificate, now time.Time) error {
	var p *pair
	by, err := s.rootKey(root)
	switch {
	case err == nil:
		p = &pair{key: NewKey()}
		p.cert, err = by.intermediate(s.config.TrustDomain, p.key.Public(), now)
	case s.config.Address != "":
		p, err = s.fetch(ctx, root, now)
	}
	if err == nil {
		err = s.dir.writePair(intermediateFile, p)
	}
	if err == nil {
		s.inter = p
		s.report("intermediate", p.cert, root)
	}
	return err
}

// above is the trusted root that this replica's intermediate is below, the active one first; nil:
// there is none.
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

// activeKey is the key of the root that signs.
func (s *selfSigned) activeKey() (*pair, error) {
	root, err := s.state.root(s.state.Active)
	if err != nil {
		return nil, err
	}
	return s.rootKey(root)
}

// rootKey reads the key of a root. An operator may have removed it, or put it back.
func (s *selfSigned) rootKey(root *x509.Certificate) (*pair, error) {
	for _, name := range []string{rootFile, nextRootFile} {
		p, err := s.dir.pair(name)
		if err != nil || p != nil && p.cert.Equal(root) {
			return p, err
		}
	}
	return nil, fmt.Errorf("the records say that root %s signs, and its key is not in %s (%s): restore that file "+
		"from a backup of the same time as the store, or put an intermediate that is signed by this root, key and "+
		"certificate, into %s", RootID(root), s.dir, rootFile, intermediateFile)
}

// intermediate signs one below a root.
func (p *pair) intermediate(trustDomain string, key crypto.PublicKey, now time.Time) (*x509.Certificate, error) {
	above, err := NewSigner(p.cert, p.key, nil, NewBundle(p.cert), now)
	if err != nil {
		return nil, fmt.Errorf("root %s: %w, and this machine's clock says %s: set the clock; if it is right and the "+
			"root has expired, move the state folder aside and let every workload join again",
			RootID(p.cert), err, now.UTC().Format(time.RFC3339))
	}
	return above.NewIntermediate("Ashore intermediate of "+trustDomain, intermediateLife, key, now)
}

// report logs a new certificate of this replica, also in the audit log.
func (s *selfSigned) report(what string, cert, root *x509.Certificate) {
	s.config.Log.Info("new certificate of the authority", "what", what, "root", RootID(root),
		"serial", serialText(cert), "expires", cert.NotAfter)
	s.config.loaded(what, cert, RootID(root))
}

// loaded records in the audit log that a certificate is in use.
func (c *ManagerConfig) loaded(target string, cert *x509.Certificate, root string) {
	c.Audit(audit.Event{Action: audit.CALoad, Actor: "ashored", Target: target, Details: map[string]string{
		"root": root, "serial": serialText(cert), "notAfter": cert.NotAfter.UTC().Format(time.RFC3339)}})
}
